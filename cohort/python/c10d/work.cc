#include "cohort/python/c10d/work.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "cohort/base/deadline.h"

namespace cohort::python {
namespace {

std::exception_ptr exception_of(const Failure& failure, const std::string& where) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  std::string text = where.empty() ? std::string(failure.what()) : fmt::format("{}: {}", where, failure.what());
  if (failure.kind() == Kind::usage) return std::make_exception_ptr(c10::ValueError(here, std::move(text)));
  return std::make_exception_ptr(c10::DistBackendError(here, std::move(text)));
}

c10::intrusive_ptr<c10::ivalue::Future> tensors_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

}  // namespace

void raise(const Failure& failure) { std::rethrow_exception(exception_of(failure, "")); }

CohortWork::CohortWork(int rank, WorkSpec spec, std::shared_ptr<SerialExecutor> executor)
    : Work(rank, spec.type, spec.title, spec.tensors),
      executor_(std::move(executor)),
      results_(std::move(spec.results)),
      title_(spec.title),
      where_(std::move(spec.where)),
      body_(std::move(spec.body)),
      resize_guard_(std::move(spec.tensors)) {}

CohortWork::~CohortWork() = default;

void CohortWork::run() noexcept {
  std::exception_ptr error;
  try {
    body_();
  } catch (const Failure& failure) {
    error = exception_of(failure, where_);
  } catch (const std::exception&) {
    error = std::current_exception();  // torch's own: out of memory, a shape that does not fit
  }
  body_ = nullptr;  // what it borrowed is released before any waiter learns that it is done
  resize_guard_.release();
  finish(error);
}

bool CohortWork::ran() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}

bool CohortWork::has_callbacks() {
  const std::lock_guard lock(mutex_);
  return future_ != nullptr;
}

void CohortWork::run_callbacks() noexcept {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    if (!future_ || callbacks_run_) return;
    callbacks_run_ = true;
    future = future_;
    error = exception_;
  }
  if (error) {
    future->setErrorIfNeeded(error);
  } else {
    future->markCompleted(c10::IValue(results_));
  }
}

c10::intrusive_ptr<c10::ivalue::Future> CohortWork::getFuture() {
  bool late = false;
  {
    const std::lock_guard lock(mutex_);
    if (!future_) future_ = tensors_future();
    late = completed_;
  }
  if (late) {
    run_callbacks();
  } else {
    executor_->start();  // a caller that asks for a future will not run it in wait()
  }
  return future_;
}

bool CohortWork::isCompleted() {
  if (ran()) return true;
  executor_->start();
  return false;
}

bool CohortWork::wait(std::chrono::milliseconds timeout) {
  const bool unlimited = timeout == kNoTimeout || timeout == c10d::kUnsetTimeout;
  if (unlimited) {
    const auto task = task_of(c10::intrusive_ptr<CohortWork>::reclaim_copy(this));
    executor_->help(*task);
  }
  if (!ran()) executor_->start();
  std::unique_lock lock(mutex_);
  if (unlimited) {
    cv_.wait(lock, [this] { return completed_; });
  } else if (!cv_.wait_for(lock, timeout, [this] { return completed_; })) {
    lock.unlock();
    give_up(timeout);
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void CohortWork::give_up(std::chrono::milliseconds timeout) {
  raise(
      Failure{{Kind::timeout,
               fmt::format("{}: {} was not done after {} ms and goes on; wait again, or abort the group", where_, title_, timeout.count()),
               kNoRank}});
}

void CohortWork::abort() {
  if (on_abort) on_abort();
}

// ---- in the executor

class WorkTask final : public SerialTask {
 public:
  explicit WorkTask(c10::intrusive_ptr<CohortWork> work) : work_(std::move(work)) {}
  void run() noexcept override { work_->run(); }
  void run_callbacks() noexcept override { work_->run_callbacks(); }
  bool done() const override { return work_->ran(); }
  bool has_callbacks() const override { return work_->has_callbacks(); }

 private:
  const c10::intrusive_ptr<CohortWork> work_;
};

std::shared_ptr<SerialTask> task_of(c10::intrusive_ptr<CohortWork> work) { return std::make_shared<WorkTask>(std::move(work)); }

// ---- several as one

namespace {

class CombinedWork final : public c10d::Work {
 public:
  explicit CombinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}

  bool isCompleted() override {
    bool all = true;
    for (const auto& work : works_) all = work->isCompleted() && all;  // every one is asked: asking starts it
    return all;
  }
  bool isSuccess() const override {
    for (const auto& work : works_) {
      if (!work->isSuccess()) return false;
    }
    return true;
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->isCompleted();  // all run while we wait for the first
    const Deadline deadline = timeout == kNoTimeout || timeout == c10d::kUnsetTimeout ? Deadline{} : Deadline::in(timeout);
    for (const auto& work : works_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
      work->wait(deadline.never() ? kNoTimeout : std::max(left, std::chrono::milliseconds(1)));
    }
    return true;
  }
  std::vector<at::Tensor> result() override {
    std::vector<at::Tensor> all;
    for (const auto& work : works_) {
      for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
    }
    return all;
  }
  void abort() override {
    for (const auto& work : works_) work->abort();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto whole = tensors_future();
    auto left = std::make_shared<std::atomic<std::size_t>>(works_.size());
    auto results = result();
    if (works_.empty()) whole->markCompleted(c10::IValue(results));
    for (const auto& work : works_) {
      work->getFuture()->addCallback([whole, left, results](c10::ivalue::Future& part) {
        if (part.hasError()) whole->setErrorIfNeeded(part.exception_ptr());
        if (left->fetch_sub(1) == 1 && !whole->hasError()) whole->markCompleted(c10::IValue(results));
      });
    }
    return whole;
  }

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> all_of(std::vector<c10::intrusive_ptr<c10d::Work>> works) {
  return c10::make_intrusive<CombinedWork>(std::move(works));
}

}  // namespace cohort::python
