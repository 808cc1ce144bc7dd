#include "cohort/queue/submission.h"

#include <climits>

namespace cohort::queue {

void Submission::finish(Result result, std::optional<Error> error) {
  if (done()) return;
  operation = Operation{};  // the caller's memory and its owner go before the caller can see the outcome
  result_ = std::move(result);
  error_ = std::move(error);
  completed_at_ = Clock::now();
  if (state_.exchange(kDone, std::memory_order_acq_rel) != kPending) futex_wake(state_, INT_MAX);
}

void Submission::sleep(Deadline deadline, const SpinPolicy& spin_policy) const {
  for (int i = 0; i < spin_policy.pauses && !done(); ++i) cpu_pause();
  for (int i = 0; i < spin_policy.yields && !done() && yield_core(); ++i) {
  }
  while (!done() && !deadline.passed()) {
    std::uint32_t state = kPending;
    state_.compare_exchange_strong(state, kAwaited, std::memory_order_acq_rel);
    if (state == kInterrupted && state_.compare_exchange_strong(state, kPending, std::memory_order_acq_rel)) return;
    futex_wait(state_, kAwaited, deadline);
  }
}

void Submission::interrupt() const {
  std::uint32_t state = state_.load(std::memory_order_acquire);
  while (state != kDone && state != kInterrupted && !state_.compare_exchange_weak(state, kInterrupted, std::memory_order_acq_rel)) {
  }
  if (state == kAwaited) futex_wake(state_, INT_MAX);
}

Result Submission::outcome() const {
  if (!done()) time_out();
  observe();
  if (error_) throw Failure{*error_};
  return result_;
}

void Submission::note(std::string text) {
  std::lock_guard lock(note_mutex_);
  note_ = std::move(text);
}

void Submission::time_out() const {
  std::lock_guard lock(note_mutex_);
  throw_failure(Kind::timeout, "'{}' was not done at the caller's deadline and goes on{}{}; wait again or abort the queue", name,
                note_.empty() ? "" : ": ", note_);
}

}  // namespace cohort::queue
