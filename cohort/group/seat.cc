#include "cohort/group/seat.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "cohort/base/log.h"
#include "cohort/group/ballot.h"
#include "cohort/group/orders.h"
#include "cohort/net/dial.h"

namespace cohort::group {
namespace {

constexpr Seconds kFrameLimit{1};
constexpr Seconds kLook{0.2};     // while it dials, between two looks whether it shall stop
constexpr Seconds kAttempt{1.5};  // for one call: the kernel repeats a lost first packet ever more rarely, a new call asks at once
constexpr double kBeats = 3;      // to a heartbeat: of a lost packet the next one tells, while the kernel waits ever longer to repeat it

WorkerId new_life() {
  WorkerId id;
  if (getrandom(&id.value, sizeof id.value, 0) != sizeof id.value) throw_system("getrandom");
  return id;
}

bool blames(const Error& error) { return error.rank && (error.kind == Kind::peer_lost || error.kind == Kind::timeout); }

}  // namespace

struct Seat::Impl {
  explicit Impl(SeatOptions o)
      : options(std::move(o)),
        listener(net::listen_on({options.listen, 0}, options.secret)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        life(new_life()) {
    if (!wake) throw_system("seat: eventfd");
    thread = std::thread([this] { run(); });
  }

  // --- the seat's thread
  void run();
  void connect();
  bool waits_to_be_asked();
  void arrive();
  void listen();
  void hear_all();
  void hear(const ElasticAction& order);
  void on(const Seal& seal);
  void on(const Begin& begin);
  void on(const Evict& evict);
  void on(const Release& release) { pending = Released{release.save, release.finish}; }
  void on(const Stop& stop);
  void on(const Refuse& refuse);
  void on(const Say& said);
  void on(const Respawn&) {}

  // --- any thread, with the lock
  bool trains() const { return ballot.phase() == Ballot::Phase::open || ballot.phase() == Ballot::Phase::prepared; }
  void shut(const Error& why);  // the epoch under way is over
  void report();
  void send(const ElasticEvent& event);
  void hang_up();
  void finish(Over how);
  void look_alone();

  // Constant after construction.
  const SeatOptions options;
  const net::Listener listener;
  const Fd wake;

  // Guarded by mutex, except that the seat's thread alone makes and drops the wire.
  mutable std::mutex mutex;
  std::condition_variable changed;
  WorkerId life;
  Ballot ballot;
  std::optional<net::Wire> wire;
  std::optional<std::variant<Begin, Released>> pending;  // for next()
  bool pending_sealed = false;                           // an epoch that was over before the training thread heard of it
  std::optional<Over> over;
  std::function<void(const Error&)> abort;
  bool asking = false;    // the training thread is in next()
  bool evicted = false;   // it has not arrived anew since
  bool live = false;      // the training thread is in an epoch that counts
  bool entering = false;  // .. and not yet connected: it says itself where it stands, when it has let go of its links
  bool reported = false, told_settled = false, wished = false, leaving = false, stop = false;
  std::string why_leaving;
  std::optional<std::int64_t> done;
  std::optional<Error> condemned;
  std::optional<Entrusted> entrusted;  // as said last
  bool first = false;                  // it was rank 0 of the epoch it was in last
  bool forsaken = false;               // it leaves by itself; no coordinator is looked for any more
  Deadline forsaken_at;                // never: there is a coordinator, or it was not asked to leave
  Deadline without_vote;               // when it stops in the middle of a step
  std::atomic<bool> sealed{false};

  // Owned by the thread.
  Deadline next_beat, alone;
  std::string problem;  // of the last call
  bool broken = false;

  std::thread thread;
};

// --- the seat's thread

void Seat::Impl::run() {
  alone = Deadline::in(options.patience);
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
    }
    try {
      wire ? listen() : connect();
    } catch (const Failure& failure) {
      const std::lock_guard lock(mutex);
      log_debug("seat: {}", failure.what());
      if (wire) hang_up();
    }
  }
}

void Seat::Impl::connect() {
  if (over || forsaken) {  // nothing left to say; written by this thread alone
    pollfd one{wake.get(), POLLIN, 0};
    poll(&one, 1, Deadline::in(kLook).left_ms());
    const std::lock_guard lock(mutex);
    return look_alone();
  }
  if (waits_to_be_asked()) return;
  const net::Hello mine{options.job, Epoch{}, kNoRank, net::Role::worker};
  net::Dial dial(options.coordinator, options.secret, mine, {}, alone);
  const Deadline attempt = Deadline::in(kAttempt);
  while (!attempt.passed()) {
    {
      const std::lock_guard lock(mutex);
      look_alone();
      if (stop || over || forsaken) return;
      if (alone.passed())
        return finish({Error{Kind::peer_lost,
                             fmt::format("the coordinator of '{}' at {} did not answer for {:g} s{}{}", options.job,
                                         options.coordinator.text(), options.patience.count(), problem.empty() ? "" : ": ", problem),
                             kNoRank}});
    }
    std::optional<net::Wire> got;
    try {
      got = dial.advance();
    } catch (const Failure& failure) {
      if (failure.kind() == Kind::timeout) return;  // the loop says so when it was the last one
      const std::lock_guard lock(mutex);
      return finish({failure.error()});
    }
    problem = dial.problem();
    if (got) {
      const std::lock_guard lock(mutex);
      wire = std::move(got);
      return arrive();
    }
    pollfd fds[] = {{dial.fd(), dial.events(), 0}, {wake.get(), POLLIN, 0}};
    poll(fds, 2, dial.look_again().sooner(Deadline::in(kLook)).left_ms());
  }
}

// A training thread that hangs would be let in again and again by the heart that beats beside it, and hold up the others each time.
bool Seat::Impl::waits_to_be_asked() {
  std::unique_lock lock(mutex);
  if (!evicted || asking) return false;
  changed.wait_for(lock, kLook, [&] { return asking || stop; });
  alone = Deadline::in(options.patience);  // no coordinator was looked for
  look_alone();
  return true;
}

void Seat::Impl::arrive() {
  evicted = false;
  const Member member{Rank{0}, listener.address.text(), getpid(), options.host};
  send(Arrive{.worker = {life, member},
              .epoch = ballot.epoch(),
              .sealed = ballot.phase() == Ballot::Phase::sealed && reported,
              .settled = trains() && told_settled,
              .standing = ballot.standing()});
  if (entrusted && entrusted->epoch == ballot.epoch()) send(*entrusted);
  if (leaving) send(Leaving{.why = why_leaving});
  if (done) send(Ended{.step = *done});
  if (condemned) send(Condemned{.error = *condemned});
  next_beat = Deadline::in(options.heartbeat / kBeats);
  forsaken_at = Deadline{};
}

void Seat::Impl::listen() {
  pollfd fds[] = {{wire->fd(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
  poll(fds, 2, next_beat.left_ms());
  if (fds[1].revents != 0) {
    eventfd_t ignored = 0;
    eventfd_read(wake.get(), &ignored);
  }
  const std::lock_guard lock(mutex);
  hear_all();
  if (!wire) return;
  // A host that vanished sends no end: what its kernel does not answer goes nowhere, and a new call finds the way when there is one.
  if (broken || net::host_is_silent(wire->fd())) return hang_up();
  if (!next_beat.passed()) return;
  send(Heard{});
  next_beat = Deadline::in(options.heartbeat / kBeats);
}

// With the lock: a stream under TLS is one thing for both directions. Half a frame is taken up where it was left.
void Seat::Impl::hear_all() {
  try {
    while (wire && wire->readable()) hear(decode_order(wire->recv(Deadline::in(Seconds{0}))));
  } catch (const Failure& failure) {
    if (failure.kind() != Kind::timeout) throw;
  }
}

void Seat::Impl::hear(const ElasticAction& order) {
  std::visit([this](const auto& o) { on(o); }, order);
  changed.notify_all();
}

void Seat::Impl::on(const Seal& seal) {
  const auto* begin = pending ? std::get_if<Begin>(&*pending) : nullptr;
  if (begin != nullptr && begin->roster.epoch == seal.epoch) return void(pending_sealed = true);
  if (!ballot.heeds(seal.term, seal.epoch) || seal.epoch != ballot.epoch() || done) return;
  if (!seal.urgent && trains()) return void(wished = true);
  shut({Kind::aborted, fmt::format("epoch {} is over: its roster changes", seal.epoch.value), kNoRank});
  ballot.seal();
  if (!entering) report();
}

void Seat::Impl::on(const Begin& begin) {
  if (begin.roster.epoch <= ballot.epoch() || begin.term < ballot.term()) return;
  pending = begin;
  pending_sealed = false;
}

// Whatever it has is of an epoch that went on without it.
void Seat::Impl::on(const Evict& evict) {
  shut(evict.error);
  log_warning("{}", evict.error.what);
  ballot = Ballot{};
  pending.reset();
  life = new_life();
  evicted = true;
  done.reset();
  hang_up();
}

void Seat::Impl::on(const Refuse& refuse) {
  if (refuse.error.kind != Kind::timeout) return finish({refuse.error});
  on(Evict{0, refuse.error});  // it was silent for too long, before it had anything to lose
}

void Seat::Impl::on(const Stop& stopped) { finish({stopped.error}); }

void Seat::Impl::on(const Say& said) { log_debug("{}", said.text); }  // the launcher shows it, once for all

void Seat::Impl::finish(Over how) {
  if (how.error) shut(*how.error);
  if (!over) over = std::move(how);
  changed.notify_all();
}

void Seat::Impl::shut(const Error& why) {
  sealed = true;
  live = false;
  if (abort) std::exchange(abort, nullptr)(why);
}

void Seat::Impl::report() {
  reported = true;
  send(Reported{.epoch = ballot.epoch(), .standing = ballot.standing()});
}

// A connection that takes nothing is given up by the seat's thread; the next Arrive says it all again.
void Seat::Impl::send(const ElasticEvent& event) {
  if (!wire || broken) return;
  const net::Frame frame = encode_event(event);
  try {
    wire->send(frame.type, frame.body, Deadline::in(kFrameLimit));
  } catch (const Failure& failure) {
    log_debug("seat: {}", failure.what());
    broken = true;
    eventfd_write(wake.get(), 1);
  }
}

void Seat::Impl::hang_up() {
  wire.reset();
  broken = false;
  alone = Deadline::in(options.patience);
  if (leaving) forsaken_at = Deadline::in(options.farewell);
}

// All who were asked to leave get here at about the same time, and any one's wish stops all of them after the same step.
void Seat::Impl::look_alone() {
  if (!forsaken && forsaken_at.passed()) {
    log_debug("seat: no coordinator to let this worker go: it leaves by itself");
    forsaken = wished = true;
    without_vote = Deadline::in(options.farewell);
    changed.notify_all();
  }
  if (!forsaken || !live || !without_vote.passed()) return;
  shut({Kind::aborted, fmt::format("epoch {} is over: its workers were asked to leave, and the coordinator is gone", ballot.epoch().value),
        kNoRank});
  ballot.seal();
}

// --- the training thread

Seat::Seat(SeatOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Seat::~Seat() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

Seat::Next Seat::next() {
  Impl& s = *impl_;
  std::unique_lock lock(s.mutex);
  while (true) {
    s.asking = true;
    s.changed.notify_all();
    s.changed.wait(lock,
                   [&] { return s.over || s.pending || s.forsaken; });  // the coordinator's limits, then our patience with it, end this
    s.asking = false;
    if (s.over) return *s.over;
    if (s.forsaken) return Released{s.first && s.ballot.standing() && !s.done, true};  // all of the roster end now
    const auto what = *std::exchange(s.pending, std::nullopt);
    if (const auto* released = std::get_if<Released>(&what)) return *released;
    const Begin begin = std::get<Begin>(what);
    const Settle how = s.ballot.welcome(begin.term, begin.roster.epoch, begin.base, bool{begin.heal_from});
    s.reported = s.told_settled = s.wished = false;
    if (std::exchange(s.pending_sealed, false)) {
      s.ballot.seal();
      s.report();
      continue;
    }
    s.live = s.entering = true;
    s.first = begin.rank == Rank{0};
    s.sealed = false;
    return Begun{begin.roster, begin.rank, begin.base, begin.heal_from, how};
  }
}

void Seat::guard(std::function<void(const Error&)> abort) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = std::move(abort);
  if (s.sealed && s.abort) std::exchange(s.abort, nullptr)({Kind::aborted, "the epoch is over", kNoRank});
}

net::Listener Seat::listener() const {
  Fd copy{fcntl(impl_->listener.fd.get(), F_DUPFD_CLOEXEC, 0)};
  if (!copy) throw_system("seat: one more descriptor of the listening socket");
  return {std::move(copy), impl_->listener.address};
}

const std::atomic<bool>& Seat::sealed() const { return impl_->sealed; }

void Seat::have_state(std::int64_t step) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ballot.phase() == Ballot::Phase::outside) throw_failure(Kind::aborted, "the job went on without this worker");
  impl_->ballot.settled(step);
}

void Seat::entered(std::int64_t step) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (!s.live) throw_failure(Kind::aborted, "epoch {} is over before it began", s.ballot.epoch().value);
  s.entering = false;
  s.told_settled = true;
  s.send(Settled{.epoch = s.ballot.epoch(), .step = step});
}

bool Seat::prepare() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->live && impl_->ballot.prepare();
}

bool Seat::decide() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->live && impl_->ballot.decide();
}

bool Seat::wish() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->wished;
}

bool Seat::may_write(Epoch epoch) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->live && impl_->ballot.may_write(epoch);
}

void Seat::left(const Error* why) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = nullptr;
  s.live = s.entering = false;
  const bool was_sealed = s.sealed.exchange(true);
  if (s.ballot.phase() == Ballot::Phase::outside || s.reported) return;
  s.ballot.seal();
  const bool follows = was_sealed && why != nullptr && why->kind == Kind::peer_lost;  // a peer went because the epoch is over, too
  if (why != nullptr && blames(*why) && !follows) s.send(Complained{.epoch = s.ballot.epoch(), .about = why->rank});
  s.report();
}

void Seat::ended(std::int64_t step) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  s.abort = nullptr;
  s.live = false;
  s.done = step;
  s.send(Ended{.step = step});
}

void Seat::leave(std::string why) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (std::exchange(s.leaving, true)) return;
  s.why_leaving = std::move(why);
  if (!s.wire) s.forsaken_at = Deadline::in(s.options.farewell);
  s.send(Leaving{.why = s.why_leaving});
}

bool Seat::leaving() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->leaving;
}

void Seat::entrusted(Rank to) {
  const std::lock_guard lock(impl_->mutex);
  impl_->entrusted = Entrusted{.epoch = impl_->ballot.epoch(), .to = to};
  impl_->send(*impl_->entrusted);
}

// Waits for the answer, the end of the job: what a process that ends at once has sent may be lost with its connection.
void Seat::condemn(const Error& why) {
  Impl& s = *impl_;
  std::unique_lock lock(s.mutex);
  s.condemned = why;
  s.send(Condemned{.error = why});
  s.changed.wait_for(lock, s.options.farewell, [&] { return s.over.has_value(); });
}

WorkerId Seat::id() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->life;
}

}  // namespace cohort::group
