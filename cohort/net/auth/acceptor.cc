#include "cohort/net/auth/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

constexpr std::size_t kBatch = Acceptor::kMaxUnauthenticated;  // accepted at a time: a flood must not keep us busy

// Connections that wait to be accepted; 0 where the kernel does not tell.
std::size_t queue_of(const Listener& listener) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(listener.fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_unacked : 0;
}

}  // namespace

Acceptor::Acceptor(const Listener& listener, const Secret& secret, Hello mine, Admit admit)
    : listener_(listener),
      secret_(secret),
      mine_(std::move(mine)),
      admit_(std::move(admit)),
      without_proof_ready_(epoll_create1(EPOLL_CLOEXEC)),
      with_proof_ready_(epoll_create1(EPOLL_CLOEXEC)) {
  if (secret_.empty()) throw_failure(Kind::usage, "an acceptor at {} needs the job's secret, and none was given", listener_.address.text());
  if (!without_proof_ready_ || !with_proof_ready_) throw_system("epoll of an acceptor");
  clear_queue();
}

void Acceptor::clear_queue() {
  const std::size_t waiting = queue_of(listener_);
  if (waiting <= kMaxUnauthenticated) return;
  for (std::size_t n = 0; n < waiting && accept_one(listener_, Deadline::in(0s)); ++n) ++counts_.unserved;
}

void Acceptor::refuse(const std::string& why) {
  ++counts_.refused;
  counts_.last_refusal = why;
  if (backing_off()) return;  // not extended: peers that leave one by one must not keep it up for ever
  back_off_until_ = Deadline::in(kBackOff);
}

void Acceptor::remove(UnauthenticatedPeers::iterator peer, int fd) {
  by_fd_.erase(fd);
  out_of_fds_ = false;
  unwatch(*peer);  // closing alone leaves it in the epoll set while a forked child holds a copy of the descriptor
  (peer->has_proof ? with_proof_ : without_proof_).erase(peer);
}

void Acceptor::evict_one(const std::string& why) {
  const auto oldest =
      without_proof_.empty() || (can_evict(with_proof_) && !can_evict(without_proof_)) ? with_proof_.begin() : without_proof_.begin();
  const int fd = oldest->session.fd();
  refuse(peer_text(fd) + ": " + why);
  remove(oldest, fd);
}

void Acceptor::unwatch(UnauthenticatedPeer& peer) {
  if (std::exchange(peer.watched, short{0}) == 0) return;
  epoll_ctl(epoll_of(peer).get(), EPOLL_CTL_DEL, peer.session.fd(), nullptr);
}

bool Acceptor::is_new(ConstBytes nonce) {
  if (std::ranges::any_of(seen_nonces_, [&](const Nonce& seen) { return std::ranges::equal(seen, nonce); })) return false;
  if (seen_nonces_.size() < kRememberedNonces) seen_nonces_.emplace_back();
  std::ranges::copy(nonce, seen_nonces_[next_nonce_].begin());
  next_nonce_ = (next_nonce_ + 1) % kRememberedNonces;
  return true;
}

void Acceptor::promote(UnauthenticatedPeers::iterator peer) {
  unwatch(*peer);
  peer->has_proof = true;
  peer->protected_until = Deadline::in(kHandshakeTime);
  const auto later = [at = peer->session.limit().at()](const UnauthenticatedPeer& other) { return other.session.limit().at() > at; };
  with_proof_.splice(std::find_if(with_proof_.begin(), with_proof_.end(), later), without_proof_, peer);
}

Fd Acceptor::accept_next() {
  try {
    Fd socket = accept_one(listener_, Deadline::in(0s));
    out_of_fds_ = false;
    return socket;
  } catch (const Failure& failure) {
    if (by_fd_.empty()) throw;
    out_of_fds_ = true;  // until one is closed: the listener stays readable and would wake us again and again
    if (can_evict(without_proof_) || can_evict(with_proof_)) evict_one(failure.what());
    return {};
  }
}

void Acceptor::watch_peer(UnauthenticatedPeers::iterator peer) {
  const short wanted = peer->session.events();
  if (peer->watched == wanted) return;
  epoll_event event{.events = static_cast<std::uint32_t>(wanted), .data = {.fd = peer->session.fd()}};  // EPOLLIN is POLLIN, and so on
  const int how = peer->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(epoll_of(*peer).get(), how, event.data.fd, &event) != 0) throw_system("epoll of an unauthenticated peer");
  peer->watched = wanted;
}

// Most unauthenticated peers have sent enough to be refused by the time they are accepted.
std::optional<ControlConnection> Acceptor::accept_waiting() {
  for (std::size_t n = 0; n < kBatch && has_room(); ++n) {
    Fd socket = accept_next();
    if (!socket) break;
    if (by_fd_.size() == kMaxUnauthenticated) evict_one("too many unauthenticated connections");
    std::string where = peer_text(socket.get());
    HandshakeSession session(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret_, mine_, admit_),
                             Deadline::in(kHandshakeLimit));
    without_proof_.push_back({std::move(session), Deadline::in(secret_.tls() ? kHandshakeTime : kPreCheckTime)});
    const auto last = std::prev(without_proof_.end());
    by_fd_.emplace(last->session.fd(), last);
    if (auto connection = advance_one(last)) return connection;
  }
  return std::nullopt;
}

std::optional<ControlConnection> Acceptor::advance_one(UnauthenticatedPeers::iterator peer) {
  const HandshakeSession::State state = peer->session.advance();
  const int fd = peer->session.fd();
  std::optional<ControlConnection> connection;
  if (state == HandshakeSession::State::going) {
    const bool first_proof = !peer->has_proof && peer->session.proof_seen();
    if (!first_proof || secret_.tls() || is_new(peer->session.peer_nonce())) {
      if (first_proof) promote(peer);
      watch_peer(peer);
      return std::nullopt;
    }
    refuse(peer_text(fd) + ": repeats a hello that was received before: a replay");
  } else if (state == HandshakeSession::State::done) {
    unwatch(*peer);      // the socket stays open
    prepare_socket(fd);  // not before: under attack most connections are closed at once
    connection = peer->session.take();
    ++counts_.admitted;
  } else {
    refuse(peer->session.error().what);
  }
  remove(peer, fd);
  return connection;
}

std::optional<ControlConnection> Acceptor::advance_ready(const Fd& epoll) {
  std::array<epoll_event, kMaxUnauthenticated> events;
  const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
  if (n < 0 && errno != EINTR) throw_system("epoll_wait of an acceptor");
  for (int i = 0; i < n; ++i) {
    const auto peer = by_fd_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (peer == by_fd_.end()) continue;
    if (auto connection = advance_one(peer->second)) return connection;  // the rest stays ready
  }
  return std::nullopt;
}

// Peers with a proof first, in the order in which their bytes came, which epoll keeps: a handshake that is complete is known before Admit
// is asked about a later one. A peer without a proof reaches Admit only after it has moved to the other list.
std::optional<ControlConnection> Acceptor::advance_all() {
  if (auto connection = advance_ready(with_proof_ready_)) return connection;
  if (auto connection = advance_ready(without_proof_ready_)) return connection;
  return advance_ready(with_proof_ready_);
}

std::optional<ControlConnection> Acceptor::advance() {
  if (backing_off()) {
    if (auto connection = advance_ready(with_proof_ready_)) return connection;
  } else {
    if (auto connection = advance_all()) return connection;  // before any deadline is checked: the caller may have been busy
    if (auto connection = accept_waiting()) return connection;
    if (auto connection = advance_all()) return connection;
  }
  for (UnauthenticatedPeers* some : {&without_proof_, &with_proof_})
    while (!some->empty() && some->front().session.limit().passed())
      if (auto connection = advance_one(some->begin())) return connection;
  return std::nullopt;
}

void Acceptor::watch(std::vector<pollfd>& into) const {
  into.push_back({has_room() && !backing_off() ? listener_.fd.get() : -1, POLLIN, 0});
  into.push_back({backing_off() ? -1 : without_proof_ready_.get(), POLLIN, 0});
  into.push_back({with_proof_ready_.get(), POLLIN, 0});
}

Deadline Acceptor::look_again() const {
  Deadline next = backing_off() ? back_off_until_ : Deadline{};
  for (const UnauthenticatedPeers* some : {&without_proof_, &with_proof_}) {
    if (some->empty()) continue;
    next = next.sooner(some->front().session.limit());
    if (!has_room()) next = next.sooner(some->front().protected_until);
  }
  return next;
}

std::optional<ControlConnection> Acceptor::next(Deadline deadline) {
  std::vector<pollfd> polls;
  while (true) {
    if (auto connection = advance()) return connection;
    if (deadline.passed()) return std::nullopt;
    const Deadline until = deadline.sooner(look_again());
    polls.clear();
    watch(polls);
    if (poll(polls.data(), polls.size(), until.left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }
}

}  // namespace cohort::net
