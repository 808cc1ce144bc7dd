#include "cohort/net/shm/peer_monitor.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <mutex>
#include <thread>

namespace cohort::net {
namespace {

enum : std::uint16_t { kGoodbye = 0x0101, kAbort = 0x0102 };
constexpr std::size_t kTextBytes = sizeof(InboxHead::text);

// Short limits: a peer that does not read its few control frames is lost anyway.
constexpr auto kSendWithin = 500ms;  // to all peers together
constexpr auto kReceiveWithin = 1s;  // the rest of a frame

class ConnectionPeerMonitor final : public PeerMonitor {
 public:
  ConnectionPeerMonitor(Rank me, std::vector<std::optional<ControlConnection>> connections, Events events)
      : me_(me), events_(std::move(events)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), connections_(std::move(connections)) {
    if (!stop_) throw_system("shm: eventfd for the monitor");
    monitor_ = std::thread([this] { run(); });
  }
  ~ConnectionPeerMonitor() override {
    eventfd_write(stop_.get(), 1);
    monitor_.join();
  }
  void abort(const Error& cause) noexcept override {
    const Error error = aborted_error(me_, cause);
    std::vector<std::byte> body(sizeof error.rank.value);
    std::memcpy(body.data(), &error.rank.value, body.size());
    const auto text = std::as_bytes(std::span(error.what)).first(std::min(error.what.size(), kTextBytes));
    body.insert(body.end(), text.begin(), text.end());
    send_all(kAbort, body);
  }
  void goodbye() noexcept override { send_all(kGoodbye, {}); }

 private:
  void send_all(std::uint16_t type, ConstBytes body) noexcept {
    const std::lock_guard lock(send_mutex_);
    const Deadline deadline = Deadline::in(kSendWithin);
    for (auto& connection : connections_) {
      if (!connection) continue;
      try {
        connection->send(type, body, deadline);
      } catch (const std::exception&) {  // the peer is gone: the monitor has detected or will detect that
      }
    }
  }

  void run() {
    std::vector<pollfd> fds;
    for (const auto& connection : connections_) fds.push_back({connection ? connection->fd() : -1, POLLIN, 0});
    fds.push_back({stop_.get(), POLLIN, 0});
    while (true) {
      ::poll(fds.data(), fds.size(), -1);
      if (fds.back().revents != 0) return;
      for (std::size_t r = 0; r < connections_.size(); ++r)
        if (fds[r].fd >= 0 && fds[r].revents != 0 && !receive_from(Rank{static_cast<int>(r)}, *connections_[r]))
          fds[r].fd = -1;  // poll skips it from now on
    }
  }

  bool receive_from(Rank peer, ControlConnection& connection) {  // false: no more frames will come
    try {
      const Frame frame = connection.recv(Deadline::in(kReceiveWithin));
      if (frame.type == kAbort) return events_.lost(peer, read_abort(peer, frame.body)), true;
      if (frame.type == kGoodbye) return events_.left(peer), false;
      events_.lost(
          peer,
          {Kind::corrupt,
           fmt::format("rank {} sent control frame {} from {}, which is unknown here", peer.value, frame.type, connection.where()), peer});
    } catch (const Failure& failure) {
      const bool closed = failure.kind() == Kind::peer_lost;
      events_.lost(peer, closed ? died_error(peer) : Error{failure.kind(), fmt::format("rank {}: {}", peer.value, failure.what()), peer});
    }
    return false;
  }

  static Error read_abort(Rank peer, const std::vector<std::byte>& body) {
    std::int32_t about = peer.value;
    if (body.size() < sizeof about) return aborted_error(peer, {Kind::aborted, "it gave no reason", peer});
    std::memcpy(&about, body.data(), sizeof about);
    return {Kind::aborted, std::string(reinterpret_cast<const char*>(body.data()) + sizeof about, body.size() - sizeof about), Rank{about}};
  }

  const Rank me_;
  const Events events_;
  const Fd stop_;
  std::mutex send_mutex_;                                      // one sender at a time
  std::vector<std::optional<ControlConnection>> connections_;  // read by the monitor only
  std::thread monitor_;
};

// Ranks that are threads cannot die without running their destructors, so the exit state in shared memory is enough.
class MemoryPeerMonitor final : public PeerMonitor {
 public:
  MemoryPeerMonitor(Rank me, Inbox own, std::vector<Inbox> peers, Events events)
      : me_(me), events_(std::move(events)), own_(own), peers_(std::move(peers)), seen_(peers_.size(), 0), monitor_([this] { run(); }) {}
  ~MemoryPeerMonitor() override {
    stop_ = true;
    own_.notify_exit_event();
    monitor_.join();
  }
  void abort(const Error& cause) noexcept override {
    const Error error = aborted_error(me_, cause);
    InboxHead& head = own_.head();
    head.about = error.rank.value;
    head.length = static_cast<std::uint32_t>(std::min(error.what.size(), kTextBytes));
    std::memcpy(head.text, error.what.data(), head.length);
    set_exit_state(InboxHead::kAborted);
  }
  void goodbye() noexcept override { set_exit_state(InboxHead::kLeft); }

 private:
  void set_exit_state(std::uint32_t bits) noexcept {
    own_.head().exit_state.fetch_or(bits);
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (Rank{static_cast<int>(r)} != me_) peers_[r].notify_exit_event();
  }

  void run() {
    while (true) {
      const auto seen = own_.head().exit_events.load();
      if (stop_) return;
      for (std::size_t r = 0; r < peers_.size(); ++r)
        if (Rank{static_cast<int>(r)} != me_) check(Rank{static_cast<int>(r)}, seen_[r]);
      futex_wait(own_.head().exit_events, seen, Deadline{});
    }
  }

  void check(Rank peer, std::uint32_t& seen) {
    const InboxHead& head = peers_[static_cast<std::size_t>(peer.value)].head();
    const std::uint32_t fresh = head.exit_state.load() & ~seen;
    seen |= fresh;
    if ((fresh & InboxHead::kAborted) != 0)
      events_.lost(peer, {Kind::aborted, std::string(head.text, std::min<std::size_t>(head.length, kTextBytes)), Rank{head.about}});
    if ((fresh & InboxHead::kLeft) != 0) events_.left(peer);
  }

  const Rank me_;
  const Events events_;
  const Inbox own_;
  const std::vector<Inbox> peers_;
  std::atomic<bool> stop_{false};
  std::vector<std::uint32_t> seen_;  // exit states; the monitor's
  std::thread monitor_;
};

}  // namespace

std::unique_ptr<PeerMonitor> connection_peer_monitor(Rank me, std::vector<std::optional<ControlConnection>> connections,
                                                     PeerMonitor::Events events) {
  return std::make_unique<ConnectionPeerMonitor>(me, std::move(connections), std::move(events));
}

std::unique_ptr<PeerMonitor> memory_peer_monitor(Rank me, Inbox own, std::vector<Inbox> peers, PeerMonitor::Events events) {
  return std::make_unique<MemoryPeerMonitor>(me, own, std::move(peers), std::move(events));
}

}  // namespace cohort::net
