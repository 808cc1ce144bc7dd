#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/socket/socket.h"
#include "cohort/net/tcp/tcp_transport.h"

namespace cohort::net {
namespace {

constexpr int kShortPollMs = 20;     // while something is left to do
constexpr int kLongPollMs = 500;     // while some host could vanish
constexpr int kShortPolls = 100;     // in a row; then a peer that does not read its last frame is checked with long polls only
constexpr Seconds kProbeAfter{1};    // of silence: new connections probe the host
constexpr Seconds kGoodbyeLimit{1};  // for sending the last bytes

}  // namespace

// Sleeps until a stream ends (or monitor_wake_), then reads what is left of it, if no other thread does.
void TcpTransport::monitor() {
  const bool remote = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p->is_local; });
  std::vector<pollfd> polls;
  int short_polls = 0;
  while (!closing_.load()) {
    polls.assign(1, {monitor_wake_.fd(), POLLIN, 0});
    bool in_flight = false;  // such a socket is left to the driver, who reads its error queue: POLLERR would keep us awake
    for (const auto& p : peers_) {
      in_flight = in_flight || p->out.in_flight();
      polls.push_back({p->hung_up.load() || p->out.in_flight() ? -1 : p->fd(), POLLRDHUP, 0});
    }
    const int idle = in_flight ? kShortPollMs : remote ? kLongPollMs : -1;
    const int wait = short_polls == 0 ? idle : short_polls < kShortPolls ? kShortPollMs : kLongPollMs;
    if (poll(polls.data(), polls.size(), wait) < 0 && errno != EINTR) return;
    monitor_wake_.clear();
    bool again = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      TcpPeer& p = *peers_[i];
      if (polls[i + 1].revents != 0 && !p.out.in_flight()) p.hung_up.store(true);
      again = check_peer(p) || again;
    }
    short_polls = again ? short_polls + 1 : 0;
  }
}

bool TcpTransport::check_peer(TcpPeer& p) {
  if (p.over.load()) {
    if (p.out.waiting()) p.out.push();  // the last frame
    return p.out.waiting();
  }
  if (!p.hung_up.load()) {
    if (!p.is_local && host_vanished(p)) ended(p, {.end = ReceiveStream::End::closed, .text = "its host has not answered for 3 s"});
    return false;
  }
  while (!closing_.load() && poll_once()) {
  }
  return !p.over.load();  // another thread drives, or the mailbox is full: check again
}

// Under packet loss a healthy stream may go without an acknowledgement for long: four losses in a row are enough, as each retransmission
// waits twice as long.
bool TcpTransport::host_vanished(TcpPeer& p) {
  const Seconds silent = unanswered_for(p.fd());
  if (silent < kProbeAfter) {
    p.host_probe = {};
    p.answered = {};
    return false;
  }
  if (p.host_probe.answered()) p.answered = Clock::now();
  p.host_probe.probe(p.fd());
  return silent >= kDeadHost && (Clock::now() - p.answered >= kDeadHost || silent >= kMaxSilence);
}

// True when nothing is left to do for this peer.
bool TcpTransport::all_sent(TcpPeer& p) noexcept {
  if (p.out.push().broken) return true;  // it died: nobody reads the rest
  if (p.out.waiting()) return false;
  if (!std::exchange(p.shut, true)) ::shutdown(p.fd(), SHUT_WR);
  // Unread bytes would turn close() into a reset, which may overtake what we have sent.
  static thread_local std::array<std::byte, 64_KiB> sink;
  for (IoResult r{IoState::moved}; r.state == IoState::moved;) {
    r = read_some(p.fd(), sink);
    if (r.state == IoState::closed && r.problem != 0) return true;
  }
  int unsent = 0;
  return ioctl(p.fd(), SIOCOUTQ, &unsent) != 0 || unsent == 0 || connection_is_over(p.fd());
}

void TcpTransport::send_goodbyes() noexcept {
  const Deadline deadline = Deadline::in(kGoodbyeLimit);
  for (const auto& p : peers_) p->out.stop(kGoodbyeFrame, {});
  std::vector<TcpPeer*> left;
  for (const auto& p : peers_) left.push_back(p.get());
  while (!left.empty() && !deadline.passed()) {
    std::erase_if(left, [](TcpPeer* p) { return all_sent(*p); });
    if (!left.empty()) poll(nullptr, 0, 1);  // acknowledgements raise no event
  }
}

}  // namespace cohort::net
