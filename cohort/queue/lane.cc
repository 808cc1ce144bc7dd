#include "cohort/queue/lane.h"

#include <climits>

#include "cohort/base/trace.h"

namespace cohort::queue {

namespace {
// After the drain the lane may still be inside a verb; abort() gets it out, this is how long it may take to notice by itself.
constexpr Seconds kGrace{0.25};
// The lane thread's nap while calls come and go. It bounds how late a lone operation starts whose caller, against habit, does not wait.
constexpr Seconds kNap{0.0005};
// Submit is often followed by wait: woken for one, the lane thread lets the caller take the wheel first.
constexpr int kCourtesyYields = 20;
}  // namespace

Lane::Lane(std::unique_ptr<collective::Communicator> communicator, QueueOptions options)
    : options_(std::move(options)),
      comm_(std::move(communicator)),
      patience_(Patience::for_ranks(2 * comm_->size())),  // a rank may be two threads here: its caller and its lane
      flights_(options_.name_window),
      executor_(*comm_) {}

void Lane::start() {
  thread_ = std::thread([this] { run(); });
}

// ---- callers

std::shared_ptr<Ticket> Lane::submit(Operation operation) {
  check(operation, comm_->rank(), comm_->size());
  const Verb verb = operation.verb;
  std::shared_ptr<Ticket> ticket;
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (flights_.find(kJoinName)) {
      throw_failure(Kind::usage, "'{}' was submitted after join(); wait for the join first: until then this rank has no data",
                    operation.name);
    }
    ticket = flights_.open(std::move(operation), Clock::now());
    tell({Event::What::submitted, ticket->name, verb});  // under the lock: nobody can start it before
    accept(ticket);
  }
  announce();
  return ticket;
}

std::shared_ptr<Ticket> Lane::join() {
  std::shared_ptr<Ticket> ticket;
  {
    std::lock_guard lock(mutex_);
    if (failure_) throw Failure{*failure_};
    if (options_.mode != Mode::negotiated)
      throw_failure(Kind::usage, "join needs a negotiated queue: an in-order one never asks who is there");
    if (flights_.find(kJoinName)) throw_failure(Kind::usage, "this rank has joined already and not all others have; wait for that join");
    ticket = flights_.open({.name = std::string(kJoinName)}, Clock::now());
    accept_join(ticket);
  }
  announce();
  return ticket;
}

// Works only without a deadline: a verb under way cannot be left in the middle, so a caller in a hurry must not start one.
Result Lane::wait(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
  while (!ticket->done()) {
    if (deadline.never() && take_wheel(ticket)) {
      turn({.until = ticket.get()});
      leave_wheel(true);
      continue;
    }
    ticket->sleep(deadline, patience_);
    if (deadline.passed()) break;
  }
  return ticket->outcome();
}

bool Lane::help(const std::shared_ptr<Ticket>& ticket, Deadline look_up) {
  while (!ticket->done() && !look_up.passed()) {
    if (!take_wheel(ticket)) {
      ticket->sleep(look_up, patience_);
      continue;
    }
    turn({.until = ticket.get(), .look_up = look_up});
    leave_wheel(true);
  }
  return ticket->done();
}

void Lane::abort(const Error& error) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }
  comm_->abort(error);
  announce();
}

void Lane::close() noexcept {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    drain_until_ = Deadline::in(options_.drain);
  }
  announce();
  const Deadline patience = Deadline::in(options_.drain + kGrace);
  while (ended_.load() == 0 && !patience.passed()) futex_wait(ended_, 0, patience);
  if (ended_.load() == 0) {
    const Rank me = comm_->rank();
    comm_->abort({Kind::aborted, fmt::format("rank {} shut its queue down in the middle of an operation", me.value), me});
  }
  thread_.join();
}

// A caller that has been waiting for each operation right after submitting it will do so again: waking the lane thread would only
// take a core away. Should it not come, the nap ends soon.
void Lane::announce() noexcept {
  if (knock()) return;
  {
    std::lock_guard lock(mutex_);
    if (held_) return;
    if (dozing_ && by_waiter_ && flights_.count() <= 1 && !closing_ && !failure_) return;
  }
  ring();
}

void Lane::ring() {
  bell_.fetch_add(1);
  if (asleep_.load()) futex_wake(bell_, 1);
}

// ---- the wheel

bool Lane::take_wheel(const std::shared_ptr<Ticket>& waits_for) {
  std::lock_guard lock(mutex_);
  if (!held_.exchange(true)) return true;
  if (!wanted_by_) wanted_by_ = waits_for;
  return false;
}

// What is left is the heir's, or the lane thread's, or, when a caller waits for one operation after the other, soon this caller's again:
// then the lane thread is left alone, and looks by itself at the end of its nap.
void Lane::leave_wheel(bool waiter) {
  std::shared_ptr<Ticket> heir;
  bool needed = false;
  {
    std::lock_guard lock(mutex_);
    held_ = false;
    const bool back_soon = waiter && by_waiter_ && dozing_;
    by_waiter_ = waiter;
    turns_ += waiter ? 1 : 0;
    if (wanted_by_ && !wanted_by_->done()) heir = wanted_by_;
    wanted_by_.reset();
    const bool left_over = flights_.count() > 0 && !heir && !back_soon;
    needed = missed_ || closing_ || failure_ || left_over;
    missed_ = false;
  }
  if (heir) heir->nudge();
  if (needed) ring();
}

void Lane::turn(const Shift& shift) noexcept {
  try {
    work(shift);
  } catch (const Failure& failure) {
    end(failure.error());
  } catch (const std::exception& e) {
    const Error bug{Kind::bug, fmt::format("the queue's lane on rank {} ended: {}", comm_->rank().value, e.what()), comm_->rank()};
    comm_->abort(bug);
    end(bug);
  }
}

bool Lane::shift_over(const Shift& shift, bool& busy) {
  if (shift.until != nullptr) return shift.until->done() || shift.look_up.passed();
  std::lock_guard lock(mutex_);
  const bool calm = flights_.count() == 0;
  if (closing_) return calm || drain_until_.passed();
  if (!calm || wanted_by_) busy = true;  // what a caller waited for may have come and gone between two looks
  if (wanted_by_ && !wanted_by_->done() && !wanted_by_->slept_on()) return true;  // to wake a caller costs more than it saves
  return calm && (busy || !shift.listen);
}

void Lane::land(const std::shared_ptr<Ticket>& ticket, Result result, std::optional<Error> error) {
  {
    std::lock_guard lock(mutex_);
    flights_.land(ticket, Clock::now());
  }
  tell({Event::What::landed, ticket->name, ticket->operation.verb});
  ticket->finish(std::move(result), std::move(error));
}

void Lane::end(const Error& error) noexcept {
  std::vector<std::shared_ptr<Ticket>> left;
  Error cause;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    cause = *failure_;
    left = flights_.all();
  }
  for (const auto& ticket : left) land(ticket, {}, cause);
}

// ---- the lane thread

void Lane::run() noexcept {
  Trace::name_thread("queue");
  std::uint32_t seen = 0;
  Wakes wakes = Wakes::to_sleep;
  for (bool nap = true; wakes != Wakes::to_end;) {
    const bool rung = await_bell(seen, nap ? Deadline::in(kNap) : Deadline{});
    seen = bell_.load();
    for (int i = 0; rung && i < kCourtesyYields && !held_.load() && yield_core(); ++i) {
    }
    wakes = wake_up(rung);
    if (wakes != Wakes::to_sleep) turn({.listen = wakes == Wakes::to_listen});
    if (wakes == Wakes::to_work || wakes == Wakes::to_listen) leave_wheel(false);
    std::lock_guard lock(mutex_);
    nap = dozing_;
  }
  say_goodbye();
  const Rank me = comm_->rank();
  end({Kind::aborted, fmt::format("rank {} shut its queue down before this was done", me.value), me});
  ended_.store(1);
  futex_wake(ended_, INT_MAX);
}

Lane::Wakes Lane::wake_up(bool rung) {
  std::lock_guard lock(mutex_);
  const bool quiet = turns_ == std::exchange(turns_seen_, turns_);
  dozing_ = true;
  if (held_) {  // a caller works; when one turn takes longer than a nap, sleep until it rings
    missed_ = !rung && quiet;
    dozing_ = !missed_;
    return Wakes::to_sleep;
  }
  held_ = true;
  if (closing_ || failure_) return Wakes::to_end;
  if (flights_.count() > 0) return Wakes::to_work;
  if (!rung && quiet && listens()) return Wakes::to_listen;
  held_ = false;
  dozing_ = rung || !quiet;
  return Wakes::to_sleep;
}

// True when it has rung since `seen`.
bool Lane::await_bell(std::uint32_t seen, Deadline until) {
  for (int i = 0; i < patience_.pauses && bell_.load() == seen; ++i) cpu_pause();
  asleep_.store(true);
  while (bell_.load() == seen && !until.passed()) futex_wait(bell_, seen, until);
  asleep_.store(false);
  return bell_.load() != seen;
}

}  // namespace cohort::queue
