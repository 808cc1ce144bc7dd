#include "cohort/net/transport/transport_base.h"

#include <climits>
#include <new>

namespace cohort::net {

void EventCount::notify() {
  word_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake(word_, INT_MAX);
}

void EventCount::sleep(std::uint32_t seen, Deadline deadline) {
  sleepers_.fetch_add(1);
  if (word_.load() == seen) futex_wait(word_, seen, deadline);
  sleepers_.fetch_sub(1);
}

bool Sending::take_copy() noexcept try {
  const Hold hold(*this);
  if (in_card.load() > 0) return false;
  copy_.assign(bytes.begin(), bytes.end());
  bytes = copy_;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool left_politely(const Error& e) { return e.kind == Kind::peer_lost && e.what == left_error(e.rank).what; }
Error left_error(Rank rank) { return {Kind::peer_lost, fmt::format("rank {} left", rank.value), rank}; }

Error died_error(Rank rank) {
  return {Kind::peer_lost, fmt::format("rank {} died (its control connection ended without a goodbye)", rank.value), rank};
}

Error aborted_error(Rank by, const Error& cause) {
  return {Kind::aborted, fmt::format("rank {} aborted: {}", by.value, cause.what), cause.rank ? cause.rank : by};
}

bool aborted_by(Rank peer, const Error& e) {
  return e.kind == Kind::aborted && e.what.starts_with(fmt::format("rank {} aborted: ", peer.value));
}

Error link_given_up_error(Rank by, const Error& cause) {
  return {Kind::aborted, fmt::format("rank {} gave up its link to us: {}", by.value, cause.what), by};
}

TransportBase::TransportBase(Rank me, int ranks, Epoch epoch, SpinPolicy patience)
    : mailbox_(me, ranks), patience_(patience), epoch_(epoch) {
  make_links();
}
TransportBase::~TransportBase() = default;

Link& TransportBase::link(Rank peer) {
  if (peer.value < 0 || peer.value >= size())
    throw_failure(Kind::usage, "{}: no link to rank {}: there are ranks 0 to {}", transport(), peer.value, size() - 1);
  return *links_[static_cast<std::size_t>(peer.value)];
}

Message TransportBase::next(TagRange range, Deadline deadline) {
  std::optional<Message> message;
  std::optional<Error> error;
  const auto found = [&] {
    if (message) return true;
    error = mailbox_.any_failure();  // asked first: what a leaving peer sent before it left still counts
    message = mailbox_.take(range);
    return message.has_value() || error.has_value();
  };
  if (!await(found, deadline))
    throw_failure(Kind::timeout, "{}: rank {} waited past its deadline for a message from any rank ({} to {})", transport(), rank().value,
                  tag_text({range.channel, range.first}), tag_text({range.channel, range.last}));
  if (!message) throw Failure{*error};
  return std::move(*message);
}

bool TransportBase::await(const std::function<bool()>& done, Deadline deadline) {
  struct AnyWaiter {
    Mailbox& mailbox;
    explicit AnyWaiter(Mailbox& m) : mailbox(m) { mailbox.add_any_waiters(1); }
    ~AnyWaiter() { mailbox.add_any_waiters(-1); }
  } const waiter(mailbox_);
  for (int r = 0; r < size(); ++r) after_room(Rank{r});
  return wait_until(done, deadline);
}

void TransportBase::discard(TagRange range) {
  mailbox_.discard(range);
  for (int r = 0; r < size(); ++r) after_room(Rank{r});
}

void TransportBase::abort(const Error& error) noexcept {
  if (aborting_.exchange(true)) return;
  cause_ = error;
  aborted_.store(true);
  send_abort(error);
  for (int r = 0; r < size(); ++r) lost(Rank{r}, error);
}

void TransportBase::lost(Rank peer, const Error& how, bool polite) noexcept {
  const bool ours = aborted_.load();  // peers that end now do so because of it: that is no cause
  const Error& error = ours ? cause_ : how;
  if (!mailbox_.fail(peer, error, polite && !ours)) return;
  on_failed(peer);
  announce();
  if (peer == rank()) return;
  if (driver_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    unreported_.emplace_back(peer, error);  // a watcher may wait on these links: not from inside step()
  else
    watchers_.report(peer, error);
}

void TransportBase::announce() {
  wake();
  if (waiting_.load() > 0) event_count_.notify();
}

void TransportBase::after_room(Rank peer) {
  if (mailbox_.take_resume(peer)) on_room(peer);
}

void TransportBase::throw_failure_of(Rank peer) const {
  if (auto error = mailbox_.failure(peer)) throw Failure{std::move(*error)};
  throw_failure(Kind::bug, "{}: link to rank {} has not failed", transport(), peer.value);
}

// ---- waiting

bool TransportBase::wait_until(const std::function<bool()>& done, Deadline deadline) {
  while (!done()) {
    if (become_driver()) {
      const Driven how = drive(done, deadline);
      stop_driving();
      if (how == Driven::done) return true;
      if (how == Driven::late) return done();
      continue;  // the failures are reported: drive on
    }
    waiting_.fetch_add(1);
    const auto seen = event_count_.now();
    if (!done() && driving_.load()) event_count_.sleep(seen, deadline);
    waiting_.fetch_sub(1);
    if (deadline.passed()) return done();
  }
  return true;
}

TransportBase::Driven TransportBase::drive(const std::function<bool()>& done, Deadline deadline) {
  constexpr int kStepsPerClock = 64;  // that moved something, between two checks of the deadline
  int idle = 0, moves = 0;
  while (true) {
    const bool moved = step();  // before done(): a wake() after this point ends the sleep below
    if (moved && waiting_.load() > 0) event_count_.notify();
    if (done()) return Driven::done;
    if (!unreported_.empty()) return Driven::peer_failed;
    if (moved) {
      idle = 0;
      if (++moves % kStepsPerClock == 0 && deadline.passed()) return Driven::late;
      continue;
    }
    const SpinPolicy patience = this->patience();
    if (++idle <= patience.pauses) {
      cpu_pause();
      continue;
    }
    if (deadline.passed()) return Driven::late;
    if (idle > patience.pauses + patience.yields || !yield_core()) sleep(deadline);
  }
}

bool TransportBase::become_driver() {
  if (driving_.exchange(true)) return false;
  driver_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

void TransportBase::stop_driving() {
  std::vector<std::pair<Rank, Error>> failures;
  failures.swap(unreported_);
  driver_.store({}, std::memory_order_relaxed);
  driving_.store(false);
  if (waiting_.load() > 0) event_count_.notify();
  for (const auto& [peer, error] : failures) watchers_.report(peer, error);
  if (step_requested_.load()) serve_step_requests();
}

void TransportBase::serve_step_requests() {
  while (step_requested_.load() && become_driver()) {
    step_requested_.store(false);
    step();
    stop_driving();
  }
}

void TransportBase::request_step() {
  step_requested_.store(true);
  serve_step_requests();
  wake();
}

bool TransportBase::poll_once() {
  if (!become_driver()) return false;
  const bool moved = step();
  stop_driving();
  return moved;
}

// ---- watchers

int TransportBase::watch(std::function<void(Rank, const Error&)> on_failure) {
  return watchers_.add(std::move(on_failure), [this](const Watchers::Call& report) {
    for (Rank r{0}; r.value < size(); ++r.value)
      if (auto error = failure(r); error && r != rank()) report(r, *error);
  });
}

void TransportBase::unwatch(int id) { watchers_.remove(id); }

}  // namespace cohort::net
