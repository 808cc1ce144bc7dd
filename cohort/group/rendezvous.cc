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
#include "cohort/group/rendezvous_state.h"
#include "cohort/net/auth/acceptor.h"
#include "cohort/net/frame/little_endian.h"

namespace cohort::group {
namespace {

constexpr Seconds kFrameLimit{1};  // for an authenticated rank to send or take its few bytes

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

std::string as_text(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

std::vector<std::byte> encode_error(const Error& error) {
  const auto text = std::as_bytes(std::span(error.what)).first(std::min<std::size_t>(error.what.size(), 4_KiB));
  std::vector<std::byte> bytes(5 + text.size());
  bytes[0] = static_cast<std::byte>(error.kind);
  net::store_le(&bytes[1], static_cast<std::uint32_t>(error.rank.value));
  std::copy(text.begin(), text.end(), bytes.begin() + 5);
  return bytes;
}

Error decode_error(ConstBytes bytes) {
  if (bytes.size() < 5 || bytes[0] > static_cast<std::byte>(Kind::bug))
    throw_failure(Kind::corrupt, "rendezvous: an invalid error message");
  const Rank rank{static_cast<std::int32_t>(net::load_le<std::uint32_t>(&bytes[1]))};
  return {static_cast<Kind>(bytes[0]), as_text(bytes.subspan(5)), rank};
}

struct RendezvousServer::Impl {
  Impl(RendezvousOptions o, net::Listener l)
      : options(std::move(o)),
        listener(std::move(l)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        acceptor(listener, options.secret, {options.job, Epoch{}, kNoRank, net::Role::coordinator}),
        state({.job = options.job,
               .size = options.size,
               .start_timeout = options.start_timeout.count(),
               .warn_after = options.warn_after.count(),
               .version = options.version}) {
    if (!wake) throw_system("rendezvous: eventfd");
    thread = std::thread([this] { run(); });
  }

  void run();
  void poll_once();
  void accept_connections();
  void receive_join(ConnectionId connection_id);
  void drop(ConnectionId connection_id);
  void take_ended();
  void act(const Actions& actions);
  void act(const Welcome& welcome);
  void act(const Refuse& refuse);
  void act(const Warn& warn);
  void act(const GiveUp& give_up);
  bool send_to(ConnectionId connection_id, std::uint16_t type, ConstBytes body) noexcept;
  void say(const std::string& text) const {
    if (options.say) options.say(text);
  }

  // Constant after construction.
  const RendezvousOptions options;
  const net::Listener listener;
  const Fd wake;

  // Guarded by mutex.
  std::mutex mutex;
  std::vector<std::pair<Rank, std::string>> ended_ranks;  // processes that ended
  bool stop = false;

  // Owned by the thread.
  net::Acceptor acceptor;
  RendezvousState state;
  std::map<ConnectionId, net::ControlConnection> connections;
  ConnectionId next_connection_id = 1;
  std::uint64_t refusals_reported = 0, errors = 0;  // logged at 1, 2, 4, 8 ..: many connections must not become many lines

  std::thread thread;
};

RendezvousServer::RendezvousServer(RendezvousOptions options, net::Listener listener)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(listener))) {}

RendezvousServer::~RendezvousServer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  eventfd_write(impl_->wake.get(), 1);
  impl_->thread.join();
}

const net::Address& RendezvousServer::address() const { return impl_->listener.address; }

void RendezvousServer::rank_ended(Rank rank, std::string how) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ended_ranks.emplace_back(rank, std::move(how));
  }
  eventfd_write(impl_->wake.get(), 1);
}

void RendezvousServer::Impl::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) return;
    }
    try {
      poll_once();
    } catch (const std::exception& e) {  // out of descriptors or memory: the job may still start when it passes
      if (std::has_single_bit(++errors)) say(fmt::format("rendezvous: {} ({} times so far)", e.what(), errors));
      std::this_thread::sleep_for(100ms);
    }
  }
}

void RendezvousServer::Impl::poll_once() {
  std::vector<pollfd> fds{{wake.get(), POLLIN, 0}};
  Deadline next = acceptor.look_again();
  if (const auto at = state.next_tick()) next = next.sooner(Deadline::in(Seconds{std::max(0.0, *at - now())}));
  acceptor.watch(fds);
  const std::size_t first_connection = fds.size();
  std::vector<ConnectionId> order;
  for (const auto& [connection_id, connection] : connections) {
    fds.push_back({connection.fd(), POLLIN, 0});
    order.push_back(connection_id);
  }
  if (poll(fds.data(), fds.size(), next.left_ms()) < 0 && errno != EINTR) throw_system("rendezvous: poll");

  if (fds[0].revents != 0) take_ended();
  for (std::size_t i = 0; i < order.size(); ++i)
    if (fds[first_connection + i].revents != 0 && connections.contains(order[i])) receive_join(order[i]);
  accept_connections();
  act(state.tick(now()));
}

void RendezvousServer::Impl::take_ended() {
  eventfd_t ignored = 0;
  eventfd_read(wake.get(), &ignored);
  std::vector<std::pair<Rank, std::string>> ended;
  {
    const std::lock_guard lock(mutex);
    ended.swap(ended_ranks);
  }
  for (auto& [rank, how] : ended) act(state.ended(rank, std::move(how)));
}

void RendezvousServer::Impl::accept_connections() {
  while (auto connection = acceptor.advance()) connections.emplace(next_connection_id++, std::move(*connection));
  const auto& counts = acceptor.counts();
  if (counts.refused > 0 && std::bit_width(counts.refused) > std::bit_width(refusals_reported))
    say(fmt::format("rendezvous: connections refused so far: {}; the last one: {}", counts.refused, counts.last_refusal));
  refusals_reported = counts.refused;
}

// A connection sends one frame, its request to join; after that it can only end.
void RendezvousServer::Impl::receive_join(ConnectionId connection_id) {
  try {
    const net::ControlConnection& connection = connections.at(connection_id);
    const Rank claimed = connection.peer().rank;
    const net::Frame frame = connections.at(connection_id).recv(Deadline::in(kFrameLimit));
    if (frame.type != kJoinFrame) throw_failure(Kind::corrupt, "rendezvous: rank {} sent a frame of type {}", claimed.value, frame.type);
    const Join request = decode_join(frame.body);
    if (request.member.rank != claimed)
      throw_failure(Kind::corrupt, "rendezvous: rank {} asks to join as rank {}", claimed.value, request.member.rank.value);
    act(state.join(connection_id, request, now()));
  } catch (const Failure& failure) {
    log_debug("rendezvous: {}", failure.what());
    drop(connection_id);
  }
}

void RendezvousServer::Impl::drop(ConnectionId connection_id) {
  connections.erase(connection_id);
  act(state.left(connection_id, now()));
}

void RendezvousServer::Impl::act(const Actions& actions) {
  for (const Action& action : actions) std::visit([this](const auto& a) { act(a); }, action);
}

void RendezvousServer::Impl::act(const Welcome& welcome) {
  if (options.before_welcome) options.before_welcome();
  const auto body = encode(welcome.roster);
  for (const ConnectionId connection_id : welcome.connection_ids) {
    send_to(connection_id, kRosterFrame, body);  // one that just died is found missing by its peers when they connect
    connections.erase(connection_id);
  }
}

void RendezvousServer::Impl::act(const Refuse& refuse) {
  say(refuse.error.what);
  send_to(refuse.connection_id, kRefusedFrame, encode_error(refuse.error));
  connections.erase(refuse.connection_id);
}

void RendezvousServer::Impl::act(const Warn& warn) {
  say(warn.text);
  for (const ConnectionId connection_id : warn.connection_ids) send_to(connection_id, kWaitingFrame, std::as_bytes(std::span(warn.text)));
}

void RendezvousServer::Impl::act(const GiveUp& give_up) {
  say(give_up.error.what);
  for (const ConnectionId connection_id : give_up.connection_ids) {
    send_to(connection_id, kRefusedFrame, encode_error(give_up.error));
    connections.erase(connection_id);
  }
}

bool RendezvousServer::Impl::send_to(ConnectionId connection_id, std::uint16_t type, ConstBytes body) noexcept {
  try {
    connections.at(connection_id).send(type, body, Deadline::in(kFrameLimit));
    return true;
  } catch (const std::exception& e) {
    log_debug("rendezvous: {}", e.what());
    return false;
  }
}

}  // namespace cohort::group
