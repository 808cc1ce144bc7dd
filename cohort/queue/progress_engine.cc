#include "cohort/queue/progress_engine.h"

#include <algorithm>
#include <climits>

#include "cohort/base/text.h"
#include "cohort/base/trace.h"

namespace cohort::queue {

namespace {
// After the drain the driver may still be inside a collective; abort() ends it, this is how long it may take to end by itself.
constexpr Seconds kGrace{0.25};
// How often the progress thread polls while callers drive. It bounds how late an operation starts whose caller, unlike before, does not
// wait.
constexpr Seconds kPollInterval{0.0005};
// How much longer than rank 0 the others wait, which would have ended the wait: at most.
constexpr Seconds kAnswerGrace{5};
// Submit is often followed by wait: woken for one, the progress thread lets the caller become the driver first.
constexpr int kYieldsToCaller = 20;
}  // namespace

ProgressEngine::ProgressEngine(std::unique_ptr<collective::Communicator> communicator, QueueOptions options)
    : options_(std::move(options)),
      comm_(std::move(communicator)),
      spin_policy_(SpinPolicy::for_ranks(2 * comm_->size())),  // a rank may be two threads here: its caller and its progress thread
      operations_(options_.name_window),
      executor_(*comm_, options_.factors_in_type) {}

void ProgressEngine::start() {
  thread_ = std::thread([this] { run(); });
}

// ---- callers

std::shared_ptr<Submission> ProgressEngine::submit(Operation operation) {
  check(operation, comm_->rank(), comm_->size());
  const Collective collective = operation.collective;
  std::shared_ptr<Submission> submission;
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (operations_.find(kJoinName)) {
      throw_failure(Kind::usage, "'{}' was submitted after join(); wait for the join first: until then this rank has no data",
                    operation.name);
    }
    submission = operations_.open(std::move(operation), Clock::now());
    emit({Event::What::submitted, submission->name, collective});  // under the lock: it cannot start before
    accept(submission);
  }
  notify();
  return submission;
}

std::shared_ptr<Submission> ProgressEngine::join() {
  std::shared_ptr<Submission> submission;
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (options_.mode != Mode::negotiated)
      throw_failure(Kind::usage, "join needs a negotiated queue: an in-order one does not know which ranks take part");
    if (operations_.find(kJoinName)) throw_failure(Kind::usage, "this rank has joined already and not all others have; wait for that join");
    submission = operations_.open({.name = std::string(kJoinName)}, Clock::now());
    accept_join(submission);
  }
  notify();
  return submission;
}

// Works only without a deadline: a running collective cannot be left in the middle, so a caller with a deadline must not start one.
Result ProgressEngine::wait(const std::shared_ptr<Submission>& submission, Deadline deadline) {
  while (!submission->done()) {
    if (deadline.never() && start_driving(submission)) {
      drive({.until = submission.get()});
      stop_driving(true);
      continue;
    }
    submission->sleep(deadline, spin_policy_);
    if (deadline.passed()) break;
  }
  return submission->outcome();
}

bool ProgressEngine::help(const std::shared_ptr<Submission>& submission, Deadline return_by) {
  while (!submission->done() && !return_by.passed()) {
    if (!start_driving(submission)) {
      submission->sleep(return_by, spin_policy_);
      continue;
    }
    drive({.until = submission.get(), .return_by = return_by});
    stop_driving(true);
  }
  if (!submission->done()) check_silence(*submission);
  return submission->done();
}

// A rank 0 that runs ends every wait itself (Negotiator); this is for one that is stopped or out of reach.
void ProgressEngine::check_silence(const Submission& submission) {
  if (options_.shutdown_after <= Seconds{0} || comm_->rank() == Rank{0}) return;
  const Clock::time_point heard{Clock::duration{heard_.load(std::memory_order_relaxed)}};
  const Seconds silent = Clock::now() - std::max(heard, submission.submitted_at);
  if (silent < options_.shutdown_after + std::min(options_.shutdown_after, kAnswerGrace)) return;
  const Rank coordinator = options_.rank_labels.empty() ? Rank{0} : options_.rank_labels.front();
  abort({Kind::timeout,
         fmt::format("'{}' waits for an answer of rank {}, which decides what runs, for more than {}; it is stopped or out of reach",
                     submission.name, coordinator.value, format_seconds(options_.shutdown_after)),
         Rank{0}});
}

void ProgressEngine::abort(const Error& error) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  comm_->abort(error);
  notify();
}

void ProgressEngine::close() noexcept {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    drain_until_ = Deadline::in(options_.drain);
  }
  notify();
  const Deadline limit = Deadline::in(options_.drain + kGrace);
  while (ended_.load() == 0 && !limit.passed()) futex_wait(ended_, 0, limit);
  if (ended_.load() == 0) {
    const Rank me = comm_->rank();
    comm_->abort({Kind::aborted, fmt::format("rank {} shut its queue down in the middle of an operation", me.value), me});
  }
  thread_.join();
}

// A caller that has been waiting for each operation right after submitting it will do so again: waking the progress thread would only take
// a core away. If it does not, the progress thread polls soon.
void ProgressEngine::notify() noexcept {
  if (wake_driver()) return;
  {
    std::lock_guard lock(mutex_);
    if (driven_) return;
    if (polling_ && by_waiter_ && operations_.count() <= 1 && !closing_ && !failure_) return;
  }
  wake_thread();
}

void ProgressEngine::wake_thread() {
  wake_count_.fetch_add(1);
  if (asleep_.load()) futex_wake(wake_count_, 1);
}

// ---- the driver role

bool ProgressEngine::start_driving(const std::shared_ptr<Submission>& waits_for) {
  std::lock_guard lock(mutex_);
  if (!driven_.exchange(true)) return true;
  if (!wanted_by_) wanted_by_ = waits_for;
  return false;
}

// What is left is done by the next driver, or the progress thread, or, when a caller waits for one operation after the other, soon by this
// caller again: then the progress thread is not woken, and polls by itself.
void ProgressEngine::stop_driving(bool waiter) {
  std::shared_ptr<Submission> next_driver;
  bool needed = false;
  {
    std::lock_guard lock(mutex_);
    driven_ = false;
    const bool back_soon = waiter && by_waiter_ && polling_;
    by_waiter_ = waiter;
    drives_ += waiter ? 1 : 0;
    if (wanted_by_ && !wanted_by_->done()) next_driver = wanted_by_;
    wanted_by_.reset();
    const bool left_over = operations_.count() > 0 && !next_driver && !back_soon;
    needed = missed_ || closing_ || failure_ || left_over;
    missed_ = false;
  }
  if (next_driver) next_driver->interrupt();
  if (needed) wake_thread();
}

void ProgressEngine::drive(const DriveLimits& limits) noexcept {
  try {
    work(limits);
  } catch (const Failure& failure) {
    end(failure.error());
  } catch (const std::exception& e) {
    const Error bug{Kind::bug, fmt::format("the queue's progress engine on rank {} ended: {}", comm_->rank().value, e.what()),
                    comm_->rank()};
    comm_->abort(bug);
    end(bug);
  }
}

bool ProgressEngine::driving_over(const DriveLimits& limits, bool& busy) {
  if (limits.until != nullptr) return limits.until->done() || limits.return_by.passed();
  std::lock_guard lock(mutex_);
  const bool idle = operations_.count() == 0;
  if (closing_) return idle || drain_until_.passed();
  if (!idle || wanted_by_) busy = true;  // what a caller waited for may have come and gone between two checks
  if (wanted_by_ && !wanted_by_->done() && !wanted_by_->has_sleeper()) return true;  // to wake a caller costs more than it saves
  return idle && (busy || !limits.listen);
}

void ProgressEngine::complete(const std::shared_ptr<Submission>& submission, Result result, std::optional<Error> error) {
  {
    std::lock_guard lock(mutex_);
    operations_.complete(submission, Clock::now());
  }
  emit({Event::What::completed, submission->name, submission->operation.collective});
  submission->finish(std::move(result), std::move(error));
}

void ProgressEngine::end(const Error& error) noexcept {
  std::vector<std::shared_ptr<Submission>> left;
  Error cause;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    cause = *failure_;
    left = operations_.all();
  }
  for (const auto& submission : left) complete(submission, {}, cause);
}

// ---- the progress thread

void ProgressEngine::run() noexcept {
  Trace::name_thread("queue");
  std::uint32_t seen = 0;
  Next next = Next::sleep;
  for (bool poll = true; next != Next::end;) {
    const bool woken = await_wake(seen, poll ? Deadline::in(kPollInterval) : Deadline{});
    seen = wake_count_.load();
    for (int i = 0; woken && i < kYieldsToCaller && !driven_.load() && yield_core(); ++i) {
    }
    next = next_action(woken);
    if (next != Next::sleep) drive({.listen = next == Next::listen});
    if (next == Next::work || next == Next::listen) stop_driving(false);
    std::lock_guard lock(mutex_);
    poll = polling_;
  }
  send_leave();
  const Rank me = comm_->rank();
  end({Kind::aborted, fmt::format("rank {} shut its queue down before this was done", me.value), me});
  ended_.store(1);
  futex_wake(ended_, INT_MAX);
}

ProgressEngine::Next ProgressEngine::next_action(bool woken) {
  std::lock_guard lock(mutex_);
  const bool quiet = drives_ == std::exchange(drives_seen_, drives_);
  polling_ = true;
  if (driven_) {  // a caller drives; when one turn takes longer than the poll interval, sleep until it wakes us
    missed_ = !woken && quiet;
    polling_ = !missed_;
    return Next::sleep;
  }
  driven_ = true;
  if (closing_ || failure_) return Next::end;
  if (operations_.count() > 0) return Next::work;
  if (!woken && quiet && listens()) return Next::listen;
  driven_ = false;
  polling_ = woken || !quiet;
  return Next::sleep;
}

// True when it was woken since `seen`.
bool ProgressEngine::await_wake(std::uint32_t seen, Deadline until) {
  for (int i = 0; i < spin_policy_.pauses && wake_count_.load() == seen; ++i) cpu_pause();
  asleep_.store(true);
  while (wake_count_.load() == seen && !until.passed()) futex_wait(wake_count_, seen, until);
  asleep_.store(false);
  return wake_count_.load() != seen;
}

}  // namespace cohort::queue
