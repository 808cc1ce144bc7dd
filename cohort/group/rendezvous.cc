#include "cohort/group/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/group/membership.h"
#include "cohort/net/door.h"
#include "cohort/net/little.h"

namespace cohort::group {
namespace {

constexpr Seconds kFrameLimit{1};  // a rank that proved itself sends or takes its few bytes in this time

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

std::string as_text(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

std::vector<std::byte> encode_error(const Error& error) {
  const auto text = std::as_bytes(std::span(error.what)).first(std::min<std::size_t>(error.what.size(), 4_KiB));
  std::vector<std::byte> bytes(5 + text.size());
  bytes[0] = static_cast<std::byte>(error.kind);
  net::put_little(&bytes[1], static_cast<std::uint32_t>(error.rank.value));
  std::copy(text.begin(), text.end(), bytes.begin() + 5);
  return bytes;
}

Error decode_error(ConstBytes bytes) {
  if (bytes.size() < 5 || bytes[0] > static_cast<std::byte>(Kind::bug))
    throw_failure(Kind::corrupt, "rendezvous: a refusal that cannot be read");
  const Rank rank{static_cast<std::int32_t>(net::get_little<std::uint32_t>(&bytes[1]))};
  return {static_cast<Kind>(bytes[0]), as_text(bytes.subspan(5)), rank};
}

struct Coordinator::Impl {
  Impl(CoordinatorOptions o, net::Listener l)
      : options(std::move(o)),
        listener(std::move(l)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        door(listener, options.secret, {options.job, Epoch{}, kNoRank, net::Role::coordinator}),
        membership({options.job, options.size, options.start_timeout.count(), options.warn_after.count()}) {
    if (!wake) throw_system("rendezvous: eventfd");
    thread = std::thread([this] { run(); });
  }

  void run();
  void poll_once();
  void greet();
  void hear(Guest guest);
  void drop(Guest guest);
  void take_news();
  void act(const Actions& actions);
  void act(const Welcome& welcome);
  void act(const Refuse& refuse);
  void act(const Warn& warn);
  void act(const GiveUp& give_up);
  bool tell(Guest guest, std::uint16_t type, ConstBytes body) noexcept;
  void say(const std::string& text) const {
    if (options.say) options.say(text);
  }

  // Constant after construction.
  const CoordinatorOptions options;
  const net::Listener listener;
  const Fd wake;

  // Guarded by mutex.
  std::mutex mutex;
  std::vector<std::pair<Rank, std::string>> news;  // processes that ended
  bool stop = false;

  // Owned by the thread.
  net::Door door;
  Membership membership;
  std::map<Guest, net::Wire> guests;
  Guest next_guest = 1;
  std::uint64_t turned_away = 0, troubles = 0;  // told at 1, 2, 4, 8 ..: a flood of strangers must not become a flood of lines

  std::thread thread;
};

Coordinator::Coordinator(CoordinatorOptions options, net::Listener listener)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(listener))) {}

Coordinator::~Coordinator() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

const net::Address& Coordinator::address() const { return impl_->listener.address; }

void Coordinator::rank_ended(Rank rank, std::string how) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->news.emplace_back(rank, std::move(how));
  }
  eventfd_write(impl_->wake.get(), 1);
}

void Coordinator::Impl::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
    }
    try {
      poll_once();
    } catch (const std::exception& e) {  // out of descriptors or memory: the job may still start when it passes
      if (std::has_single_bit(++troubles)) say(fmt::format("rendezvous: {} ({} times so far)", e.what(), troubles));
      std::this_thread::sleep_for(100ms);
    }
  }
}

void Coordinator::Impl::poll_once() {
  std::vector<pollfd> fds{{wake.get(), POLLIN, 0}};
  Deadline next = door.look_again();
  if (const auto at = membership.next_tick()) next = next.sooner(Deadline::in(Seconds{std::max(0.0, *at - now())}));
  door.watch(fds);
  const std::size_t first_guest = fds.size();
  std::vector<Guest> order;
  for (const auto& [guest, wire] : guests) {
    fds.push_back({wire.fd(), POLLIN, 0});
    order.push_back(guest);
  }
  if (poll(fds.data(), fds.size(), next.left_ms()) < 0 && errno != EINTR) throw_system("rendezvous: poll");

  if (fds[0].revents != 0) take_news();
  for (std::size_t i = 0; i < order.size(); ++i)
    if (fds[first_guest + i].revents != 0 && guests.contains(order[i])) hear(order[i]);
  greet();
  act(membership.tick(now()));
}

void Coordinator::Impl::take_news() {
  eventfd_t ignored = 0;
  eventfd_read(wake.get(), &ignored);
  std::vector<std::pair<Rank, std::string>> ended;
  {
    const std::lock_guard lock(mutex);
    ended.swap(news);
  }
  for (auto& [rank, how] : ended) act(membership.ended(rank, std::move(how)));
}

void Coordinator::Impl::greet() {
  while (auto wire = door.advance()) guests.emplace(next_guest++, std::move(*wire));
  const auto& counts = door.counts();
  if (counts.refused > 0 && std::bit_width(counts.refused) > std::bit_width(turned_away))
    say(fmt::format("rendezvous: turned away ({} so far): {}", counts.refused, counts.last_refusal));
  turned_away = counts.refused;
}

// A guest sends one frame, its wish to join; anything after that can only be its end.
void Coordinator::Impl::hear(Guest guest) {
  try {
    const net::Wire& wire = guests.at(guest);
    const Rank claimed = wire.peer().rank;
    const net::Frame frame = guests.at(guest).recv(Deadline::in(kFrameLimit));
    if (frame.type != kJoinFrame) throw_failure(Kind::corrupt, "rendezvous: rank {} sent a frame of type {}", claimed.value, frame.type);
    const Join wish = decode_join(frame.body);
    if (wish.member.rank != claimed)
      throw_failure(Kind::corrupt, "rendezvous: rank {} wants to join as rank {}", claimed.value, wish.member.rank.value);
    act(membership.join(guest, wish, now()));
  } catch (const Failure& failure) {
    log_debug("rendezvous: {}", failure.what());
    drop(guest);
  }
}

void Coordinator::Impl::drop(Guest guest) {
  guests.erase(guest);
  act(membership.left(guest, now()));
}

void Coordinator::Impl::act(const Actions& actions) {
  for (const Action& action : actions) std::visit([this](const auto& a) { act(a); }, action);
}

void Coordinator::Impl::act(const Welcome& welcome) {
  if (options.before_welcome) options.before_welcome();
  const auto body = encode(welcome.roster);
  for (const Guest guest : welcome.guests) {
    tell(guest, kRosterFrame, body);  // one that just died is found missing by its peers when they connect
    guests.erase(guest);
  }
}

void Coordinator::Impl::act(const Refuse& refuse) {
  say(refuse.error.what);
  tell(refuse.guest, kRefusedFrame, encode_error(refuse.error));
  guests.erase(refuse.guest);
}

void Coordinator::Impl::act(const Warn& warn) {
  say(warn.text);
  for (const Guest guest : warn.guests) tell(guest, kWaitingFrame, std::as_bytes(std::span(warn.text)));
}

void Coordinator::Impl::act(const GiveUp& give_up) {
  say(give_up.error.what);
  for (const Guest guest : give_up.guests) {
    tell(guest, kRefusedFrame, encode_error(give_up.error));
    guests.erase(guest);
  }
}

bool Coordinator::Impl::tell(Guest guest, std::uint16_t type, ConstBytes body) noexcept {
  try {
    guests.at(guest).send(type, body, Deadline::in(kFrameLimit));
    return true;
  } catch (const std::exception& e) {
    log_debug("rendezvous: {}", e.what());
    return false;
  }
}

}  // namespace cohort::group
