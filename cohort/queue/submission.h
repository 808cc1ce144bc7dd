// A Submission is one submitted operation and, later, its outcome. A Handle is the caller's reference to it.
// Owner: shared by the caller's handles and the progress engine (sharing is the point: either may release it first).
// Threads: finish() once, by the driver; everything const from any thread. Failure: outcome() throws the operation's own Failure.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/futex.h"
#include "cohort/queue/operation.h"

namespace cohort::queue {

class Submission {
 public:
  explicit Submission(Operation what, Clock::time_point now = Clock::now())
      : operation(std::move(what)), name(operation.name), submitted_at(now) {}

  Operation operation;     // owned by the driver until finish(), which releases it
  const std::string name;  // outlives the operation: errors and the table of names use it
  const Clock::time_point submitted_at;

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  void finish(Result result, std::optional<Error> error);  // wakes the waiters; the first call counts

  // Returns when done, interrupted, or past the deadline; the caller checks which.
  void sleep(Deadline deadline, const SpinPolicy& spin_policy) const;
  bool has_sleeper() const { return state_.load(std::memory_order_acquire) == kAwaited; }
  void interrupt() const;  // ends one sleep() without an outcome
  // Throws the operation's Failure; Kind::timeout when it is not done.
  Result outcome() const;
  // A caller has seen the outcome: the name is free for the next operation.
  void observe() const { observed_.store(true, std::memory_order_release); }
  bool observed() const { return observed_.load(std::memory_order_acquire); }
  // When the outcome came; meaningful once done().
  Clock::time_point completed_at() const { return completed_at_; }
  // Rank 0's report on why this takes so long; a timed-out wait repeats it.
  void note(std::string text);

 private:
  static constexpr std::uint32_t kPending = 0, kAwaited = 1, kInterrupted = 2, kDone = 3;
  [[noreturn]] void time_out() const;

  mutable Word state_{kPending};
  mutable std::atomic<bool> observed_{false};
  Result result_;                   // written before kDone
  std::optional<Error> error_;      // written before kDone
  Clock::time_point completed_at_;  // written before kDone
  mutable std::mutex note_mutex_;
  std::string note_;  // guarded by note_mutex_
};

// Copyable; an empty one belongs to no operation. Dropping it does not cancel the operation.
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::shared_ptr<Submission> submission) : submission_(std::move(submission)) {}
  explicit operator bool() const { return submission_ != nullptr; }
  const std::string& name() const { return submission_->name; }

 private:
  friend class Queue;
  std::shared_ptr<Submission> submission_;
};

}  // namespace cohort::queue
