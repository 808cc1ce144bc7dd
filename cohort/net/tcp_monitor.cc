#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/socket.h"
#include "cohort/net/tcp_mesh.h"

namespace cohort::net {
namespace {

constexpr int kHurryMs = 20;    // between two looks while something is left to do
constexpr int kStrollMs = 500;  // while some host could vanish
constexpr int kHurries = 100;   // then a peer that does not take its last words is looked at now and then only
constexpr Seconds kDoubt{1};    // a stream is silent for so long: its host is asked in another way
constexpr Seconds kGoodbye{1};  // how long a leaving mesh tries to get its last bytes out

}  // namespace

// Sleeps until a stream ends (or somebody rings), then reads what is left of it, if no other thread does.
void TcpMesh::monitor() {
  const bool remote = std::any_of(peers_.begin(), peers_.end(), [](const auto& p) { return !p->is_local; });
  std::vector<pollfd> polls;
  int hurries = 0;
  while (!closing_.load()) {
    polls.assign(1, {monitor_bell_.fd(), POLLIN, 0});
    bool flying = false;  // the error queue of such a socket is its driver's business, and would keep us awake
    for (const auto& p : peers_) {
      flying = flying || p->out.flying();
      polls.push_back({p->hung_up.load() || p->out.flying() ? -1 : p->fd(), POLLRDHUP, 0});
    }
    const int idle = flying ? kHurryMs : remote ? kStrollMs : -1;
    const int wait = hurries == 0 ? idle : hurries < kHurries ? kHurryMs : kStrollMs;
    if (poll(polls.data(), polls.size(), wait) < 0 && errno != EINTR) return;
    monitor_bell_.hush();
    bool again = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      TcpPeer& p = *peers_[i];
      if (polls[i + 1].revents != 0 && !p.out.flying()) p.hung_up.store(true);
      again = look_after(p) || again;
    }
    hurries = again ? hurries + 1 : 0;
  }
}

bool TcpMesh::look_after(TcpPeer& p) {
  if (p.over.load()) {
    if (p.out.waiting()) p.out.push();  // last words
    return p.out.waiting();
  }
  if (!p.hung_up.load()) {
    if (!p.is_local && vanished(p)) ended(p, {.end = Inflow::End::closed, .text = "its host has not answered for 3 s"});
    return false;
  }
  while (!closing_.load() && poll_once()) {
  }
  return !p.over.load();  // another thread drives, or the mailbox is full: somebody will get there
}

// Where packets are lost a stream may be without an answer for long: four in a row are enough, since it waits twice as long each time.
bool TcpMesh::vanished(TcpPeer& p) {
  const Seconds silent = unanswered_for(p.fd());
  if (silent < kDoubt) {
    p.knock = {};
    p.answered = {};
    return false;
  }
  if (p.knock.answered()) p.answered = Clock::now();
  p.knock.call(p.fd());
  return silent >= kDeadHost && (Clock::now() - p.answered >= kDeadHost || silent >= kLastHope);
}

// True when nothing is left to do for this peer.
bool TcpMesh::gone(TcpPeer& p) noexcept {
  if (p.out.push().broken) return true;  // it died: nobody is there to hear the rest
  if (p.out.waiting()) return false;
  if (!std::exchange(p.shut, true)) ::shutdown(p.fd(), SHUT_WR);
  // Unread bytes would turn close() into a reset, which may overtake what we have sent.
  static thread_local std::array<std::byte, 64_KiB> sink;
  for (IoResult r{Io::moved}; r.state == Io::moved;) {
    r = read_some(p.fd(), sink);
    if (r.state == Io::closed && r.problem != 0) return true;
  }
  int unsent = 0;
  return ioctl(p.fd(), SIOCOUTQ, &unsent) != 0 || unsent == 0 || connection_is_over(p.fd());
}

void TcpMesh::say_goodbye() noexcept {
  const Deadline deadline = Deadline::in(kGoodbye);
  for (const auto& p : peers_) p->out.stop(kGoodbyeFrame, {});
  std::vector<TcpPeer*> left;
  for (const auto& p : peers_) left.push_back(p.get());
  while (!left.empty() && !deadline.passed()) {
    std::erase_if(left, [](TcpPeer* p) { return gone(*p); });
    if (!left.empty()) poll(nullptr, 0, 1);  // acknowledgements raise no event
  }
}

}  // namespace cohort::net
