#include "cohort/net/hub.h"

#include <climits>

namespace cohort::net {

void Bell::ring() {
  word_.fetch_add(1);
  if (sleepers_.load() > 0) futex_wake(word_, INT_MAX);
}

void Bell::sleep(std::uint32_t seen, Deadline deadline) {
  sleepers_.fetch_add(1);
  if (word_.load() == seen) futex_wait(word_, seen, deadline);
  sleepers_.fetch_sub(1);
}

bool left_politely(const Error& e) { return e.kind == Kind::peer_lost && e.what == left_error(e.rank).what; }
Error left_error(Rank rank) { return {Kind::peer_lost, fmt::format("rank {} left", rank.value), rank}; }

Error died_error(Rank rank) {
  return {Kind::peer_lost, fmt::format("rank {} died (its control connection ended without a goodbye)", rank.value), rank};
}

Error aborted_error(Rank by, const Error& cause) {
  return {Kind::aborted, fmt::format("rank {} aborted: {}", by.value, cause.what), cause.rank ? cause.rank : by};
}

Hub::Hub(Rank me, int ranks, Epoch epoch, Patience patience) : mailbox_(me, ranks), patience_(patience), epoch_(epoch) { make_links(); }
Hub::~Hub() = default;

Link& Hub::link(Rank peer) {
  if (peer.value < 0 || peer.value >= size())
    throw_failure(Kind::usage, "{}: no link to rank {}: there are ranks 0 to {}", transport(), peer.value, size() - 1);
  return *links_[static_cast<std::size_t>(peer.value)];
}

Message Hub::next(TagRange range, Deadline deadline) {
  struct Wanting {
    Mailbox& mailbox;
    explicit Wanting(Mailbox& m) : mailbox(m) { mailbox.wanting_any(1); }
    ~Wanting() { mailbox.wanting_any(-1); }
  } const wanting(mailbox_);
  for (int r = 0; r < size(); ++r) after_room(Rank{r});
  std::optional<Message> message;
  std::optional<Error> error;
  const auto found = [&] {
    if (message) return true;
    error = mailbox_.any_failure();  // asked first: what a leaving peer sent before it left still counts
    message = mailbox_.take(range);
    return message.has_value() || error.has_value();
  };
  if (!wait_until(found, deadline))
    throw_failure(Kind::timeout, "{}: rank {} waited past its deadline for a message from any rank ({} to {})", transport(), rank().value,
                  tag_text({range.channel, range.first}), tag_text({range.channel, range.last}));
  if (!message) throw Failure{*error};
  return std::move(*message);
}

void Hub::discard(TagRange range) {
  mailbox_.discard(range);
  for (int r = 0; r < size(); ++r) after_room(Rank{r});
}

void Hub::abort(const Error& error) noexcept {
  if (aborting_.exchange(true)) return;
  cause_ = error;
  aborted_.store(true);
  tell_abort(error);
  for (int r = 0; r < size(); ++r) lost(Rank{r}, error);
}

void Hub::lost(Rank peer, const Error& how, bool polite) noexcept {
  const bool ours = aborted_.load();  // whoever ends now was told to: that is no cause
  const Error& error = ours ? cause_ : how;
  if (!mailbox_.fail(peer, error, polite && !ours)) return;
  on_failed(peer);
  announce();
  if (peer == rank()) return;
  if (driver_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    news_.emplace_back(peer, error);  // a watcher may want to wait on this mesh: not from inside step()
  else
    watchers_.report(peer, error);
}

void Hub::announce() {
  wake();
  if (waiting_.load() > 0) bell_.ring();
}

void Hub::after_room(Rank peer) {
  if (mailbox_.thaw(peer)) on_room(peer);
}

void Hub::throw_failure_of(Rank peer) const {
  if (auto error = mailbox_.failure(peer)) throw Failure{std::move(*error)};
  throw_failure(Kind::bug, "{}: link to rank {} has not failed", transport(), peer.value);
}

// ---- waiting

bool Hub::wait_until(const std::function<bool()>& done, Deadline deadline) {
  while (!done()) {
    if (take_wheel()) {
      const Driven how = drive(done, deadline);
      leave_wheel();
      if (how == Driven::done) return true;
      if (how == Driven::late) return done();
      continue;  // with news told, drive on
    }
    waiting_.fetch_add(1);
    const auto seen = bell_.now();
    if (!done() && driving_.load()) bell_.sleep(seen, deadline);
    waiting_.fetch_sub(1);
    if (deadline.passed()) return done();
  }
  return true;
}

Hub::Driven Hub::drive(const std::function<bool()>& done, Deadline deadline) {
  constexpr int kLookAtClock = 64;  // steps that moved something between two looks
  int idle = 0, moves = 0;
  while (true) {
    const bool moved = step();  // before done(): a wake() after this point ends the sleep below
    if (moved && waiting_.load() > 0) bell_.ring();
    if (done()) return Driven::done;
    if (!news_.empty()) return Driven::news;
    if (moved) {
      idle = 0;
      if (++moves % kLookAtClock == 0 && deadline.passed()) return Driven::late;
      continue;
    }
    const Patience patience = this->patience();
    if (++idle <= patience.pauses) {
      cpu_pause();
      continue;
    }
    if (deadline.passed()) return Driven::late;
    if (idle > patience.pauses + patience.yields || !yield_core()) sleep(deadline);
  }
}

bool Hub::take_wheel() {
  if (driving_.exchange(true)) return false;
  driver_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

void Hub::leave_wheel() {
  std::vector<std::pair<Rank, Error>> news;
  news.swap(news_);
  driver_.store({}, std::memory_order_relaxed);
  driving_.store(false);
  if (waiting_.load() > 0) bell_.ring();
  for (const auto& [peer, error] : news) watchers_.report(peer, error);
  if (prodded_.load()) serve_prods();
}

void Hub::serve_prods() {
  while (prodded_.load() && take_wheel()) {
    prodded_.store(false);
    step();
    leave_wheel();
  }
}

void Hub::prod() {
  prodded_.store(true);
  serve_prods();
  wake();
}

bool Hub::poll_once() {
  if (!take_wheel()) return false;
  const bool moved = step();
  leave_wheel();
  return moved;
}

// ---- watchers

int Hub::watch(std::function<void(Rank, const Error&)> on_failure) {
  return watchers_.add(std::move(on_failure), [this](const Watchers::Call& tell) {
    for (Rank r{0}; r.value < size(); ++r.value)
      if (auto error = failure(r); error && r != rank()) tell(r, *error);
  });
}

void Hub::unwatch(int id) { watchers_.remove(id); }

}  // namespace cohort::net
