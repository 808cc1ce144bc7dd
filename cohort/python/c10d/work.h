// A Work is one operation of a process group, as torch.distributed sees it: wait(), is_completed(), get_future(), result().
// Owner: the caller, and the executor until it ran (sharing is the point: DDP drops its handle, a user may drop theirs). Threads: any.
// Failure: what the operation failed with, as torch's exceptions (see raise()); the same at every wait.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "cohort/base/error.h"
#include "cohort/python/c10d/resize_guard.h"
#include "cohort/python/c10d/serial_executor.h"

namespace cohort::python {

// Kind::usage is a ValueError, everything else a torch.distributed.DistBackendError (a RuntimeError).
[[noreturn]] void raise(const Failure& failure);
// Runs body; turns its Failure into raise()'s exception.
template <class Body>
auto raising(Body&& body) {
  try {
    return body();
  } catch (const Failure& failure) {
    raise(failure);
  }
}

struct WorkSpec {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";             // what the profiler shows: "cohort:all_reduce"
  std::vector<at::Tensor> tensors{};  // read or written until done
  std::vector<at::Tensor> results{};  // what result() and the future give
  std::function<void()> body{};       // the operation itself; throws Failure
  std::string where{};                // for errors: "group 'tp', rank 1 of 2"
};

class CohortWork final : public c10d::Work {
 public:
  CohortWork(int rank, WorkSpec spec, std::shared_ptr<SerialExecutor> executor);
  ~CohortWork() override;

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return source_.load(); }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  void abort() override;
  uint64_t getSequencenumber() const override { return number; }

  void set_source(int rank) { source_.store(rank); }
  void set_body(std::function<void()> body) { body_ = std::move(body); }  // before it is put on an executor

  uint64_t number = 0;               // in its group; set before another thread sees the work
  std::function<void()> on_abort{};  // likewise

 private:
  friend class WorkTask;
  void run() noexcept;
  void run_callbacks() noexcept;
  bool ran() const;
  bool has_callbacks();
  [[noreturn]] void give_up(std::chrono::milliseconds timeout);

  // ---- constant after construction
  const std::shared_ptr<SerialExecutor> executor_;
  const std::vector<at::Tensor> results_;
  const std::string title_, where_;
  std::function<void()> body_;  // owned by the executor once it is put there
  ResizeGuard resize_guard_;
  std::atomic<int> source_{-1};
  // ---- guarded by Work::mutex_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool callbacks_run_ = false;
};

// The task that runs a work; keeps it alive in the executor.
std::shared_ptr<SerialTask> task_of(c10::intrusive_ptr<CohortWork> work);

// CombinedWork works as one: done when all are, failed with the first failure in their order.
c10::intrusive_ptr<c10d::Work> all_of(std::vector<c10::intrusive_ptr<c10d::Work>> works);

}  // namespace cohort::python
