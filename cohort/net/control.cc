#include "cohort/net/control.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <mutex>
#include <thread>

namespace cohort::net {
namespace {

enum : std::uint16_t { kGoodbye = 0x0101, kAbort = 0x0102 };
constexpr std::size_t kTextBytes = sizeof(InboxHead::text);

// A wire that never blocks its sender for long: a peer that does not read its few control frames is lost anyway.
constexpr auto kTellWithin = 500ms;  // all peers together
constexpr auto kHearWithin = 1s;

class WireControl final : public Control {
 public:
  WireControl(Rank me, std::vector<std::optional<Wire>> wires, Events events)
      : me_(me), events_(std::move(events)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), wires_(std::move(wires)) {
    if (!stop_) throw_system("shm: eventfd for the monitor");
    monitor_ = std::thread([this] { run(); });
  }
  ~WireControl() override {
    eventfd_write(stop_.get(), 1);
    monitor_.join();
  }
  void abort(const Error& cause) noexcept override {
    const Error error = aborted_error(me_, cause);
    std::vector<std::byte> body(sizeof error.rank.value);
    std::memcpy(body.data(), &error.rank.value, body.size());
    const auto text = std::as_bytes(std::span(error.what)).first(std::min(error.what.size(), kTextBytes));
    body.insert(body.end(), text.begin(), text.end());
    tell(kAbort, body);
  }
  void goodbye() noexcept override { tell(kGoodbye, {}); }

 private:
  void tell(std::uint16_t type, ConstBytes body) noexcept {
    const std::lock_guard lock(send_mutex_);
    const Deadline deadline = Deadline::in(kTellWithin);
    for (auto& wire : wires_) {
      if (!wire) continue;
      try {
        wire->send(type, body, deadline);
      } catch (const std::exception&) {  // the peer is gone: its end has been or will be noticed by the monitor
      }
    }
  }

  void run() {
    std::vector<pollfd> fds;
    for (const auto& wire : wires_) fds.push_back({wire ? wire->fd() : -1, POLLIN, 0});
    fds.push_back({stop_.get(), POLLIN, 0});
    while (true) {
      ::poll(fds.data(), fds.size(), -1);
      if (fds.back().revents != 0) return;
      for (std::size_t r = 0; r < wires_.size(); ++r)
        if (fds[r].fd >= 0 && fds[r].revents != 0 && !hear(Rank{static_cast<int>(r)}, *wires_[r]))
          fds[r].fd = -1;  // poll skips it from now on
    }
  }

  bool hear(Rank peer, Wire& wire) {  // false: nothing more will come
    try {
      const Frame frame = wire.recv(Deadline::in(kHearWithin));
      if (frame.type == kAbort) return events_.lost(peer, read_abort(peer, frame.body)), true;
      if (frame.type == kGoodbye) return events_.left(peer), false;
      events_.lost(
          peer,
          {Kind::corrupt,
           fmt::format("rank {} sent control frame {} from {}, which means nothing here", peer.value, frame.type, wire.where()), peer});
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
  std::mutex send_mutex_;                   // one sender at a time
  std::vector<std::optional<Wire>> wires_;  // received from by the monitor only
  std::thread monitor_;
};

// The peers' threads end in their destructors and nowhere else, so last words are enough.
class MemoryControl final : public Control {
 public:
  MemoryControl(Rank me, Inbox own, std::vector<Inbox> peers, Events events)
      : me_(me), events_(std::move(events)), own_(own), peers_(std::move(peers)), heard_(peers_.size(), 0), monitor_([this] { run(); }) {}
  ~MemoryControl() override {
    stop_ = true;
    own_.call_attention();
    monitor_.join();
  }
  void abort(const Error& cause) noexcept override {
    const Error error = aborted_error(me_, cause);
    InboxHead& head = own_.head();
    head.about = error.rank.value;
    head.length = static_cast<std::uint32_t>(std::min(error.what.size(), kTextBytes));
    std::memcpy(head.text, error.what.data(), head.length);
    say(InboxHead::kAborted);
  }
  void goodbye() noexcept override { say(InboxHead::kLeft); }

 private:
  void say(std::uint32_t words) noexcept {
    own_.head().last_words.fetch_or(words);
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (Rank{static_cast<int>(r)} != me_) peers_[r].call_attention();
  }

  void run() {
    while (true) {
      const auto seen = own_.head().attention.load();
      if (stop_) return;
      for (std::size_t r = 0; r < peers_.size(); ++r)
        if (Rank{static_cast<int>(r)} != me_) listen(Rank{static_cast<int>(r)}, heard_[r]);
      futex_wait(own_.head().attention, seen, Deadline{});
    }
  }

  void listen(Rank peer, std::uint32_t& heard) {
    const InboxHead& head = peers_[static_cast<std::size_t>(peer.value)].head();
    const std::uint32_t fresh = head.last_words.load() & ~heard;
    heard |= fresh;
    if ((fresh & InboxHead::kAborted) != 0)
      events_.lost(peer, {Kind::aborted, std::string(head.text, std::min<std::size_t>(head.length, kTextBytes)), Rank{head.about}});
    if ((fresh & InboxHead::kLeft) != 0) events_.left(peer);
  }

  const Rank me_;
  const Events events_;
  const Inbox own_;
  const std::vector<Inbox> peers_;
  std::atomic<bool> stop_{false};
  std::vector<std::uint32_t> heard_;  // by the monitor
  std::thread monitor_;
};

}  // namespace

std::unique_ptr<Control> wire_control(Rank me, std::vector<std::optional<Wire>> wires, Control::Events events) {
  return std::make_unique<WireControl>(me, std::move(wires), std::move(events));
}

std::unique_ptr<Control> memory_control(Rank me, Inbox own, std::vector<Inbox> peers, Control::Events events) {
  return std::make_unique<MemoryControl>(me, own, std::move(peers), std::move(events));
}

}  // namespace cohort::net
