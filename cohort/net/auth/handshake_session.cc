#include "cohort/net/auth/handshake_session.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cohort/net/auth/control_connection_impl.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {

HandshakeSession::HandshakeSession(Fd socket, std::string where, Handshake handshake, Deadline deadline)
    : socket_(std::move(socket)), where_(std::move(where)), handshake_(std::move(handshake)), limit_(deadline) {}

short HandshakeSession::events() const {
  const bool unsent = tls_ ? tls_->unsent() : false;
  return static_cast<short>(unsent || (!handshake_.to_send().empty() && (encrypted_ || !handshake_.secret().tls())) ? POLLIN | POLLOUT
                                                                                                                    : POLLIN);
}

HandshakeSession::State HandshakeSession::give_up(Kind kind, std::string what) {
  error_ = {kind, fmt::format("{}: {}", where_, what), kNoRank};
  return State::failed;
}

HandshakeSession::State HandshakeSession::broken(int problem) {
  cut_ = true;
  if (!handshake_.received_any() && !encrypted_) return give_up(Kind::peer_lost, problem_text(problem) + " before the first byte");
  return give_up(Kind::corrupt, problem_text(problem) +
                                    " in the middle of the handshake: it holds another job secret, or died; check that all processes "
                                    "have the same secret");
}

HandshakeSession::State HandshakeSession::late_or_going() {
  if (!limit_.passed()) return State::going;
  return give_up(Kind::timeout, "did not finish the handshake in time");
}

HandshakeSession::State HandshakeSession::fail_plain_peer() {
  return give_up(Kind::corrupt, "speaks without TLS and this process demands it: give --tls (COHORT_TLS=true) to every process of the job");
}

// A TLS session costs memory: a listener creates one only for a peer whose first byte is TLS, and handles the others by that byte.
std::optional<HandshakeSession::State> HandshakeSession::check_first_byte() {
  std::byte first{};
  const ssize_t n = recv(socket_.get(), &first, 1, MSG_PEEK);
  if (n > 0 || handshake_.is_listener()) limit_from_now();
  if (tls_ || !handshake_.is_listener()) return std::nullopt;
  if (n == 0) return broken(0);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? late_or_going() : broken(errno);
  if (Tls::looks_like(first)) return std::nullopt;
  if (!is_opening_byte(first)) return give_up(Kind::corrupt, "speaks another protocol: its first byte is no TLS record");
  const ConstBytes alert = Tls::alert();
  const iovec part{const_cast<std::byte*>(alert.data()), alert.size()};
  write_some(socket_.get(), {&part, 1});  // tells it that TLS is required
  return fail_plain_peer();
}

HandshakeSession::State HandshakeSession::encrypt() {
  if (const auto known = check_first_byte()) return *known;
  const auto side = handshake_.is_listener() ? Tls::Side::listener : Tls::Side::dialer;
  if (!tls_) tls_ = std::make_unique<Tls>(socket_.get(), side, handshake_.secret());
  const IoResult r = tls_->handshake();
  if (r.state == IoState::later) return late_or_going();
  if (r.state == IoState::closed && r.problem != EBADMSG) return broken(r.problem);
  if (r.state == IoState::closed && tls_->saw_other_protocol()) return fail_plain_peer();
  if (r.state == IoState::closed)
    return give_up(
        Kind::corrupt,
        fmt::format("its TLS handshake failed ({}): it holds another job secret; check that all processes have the same", tls_->why()));
  encrypted_ = true;
  return State::done;
}

void HandshakeSession::limit_from_now() {
  if (limited_) return;
  limit_ = limit_.sooner(Deadline::in(kHandshakeLimit));
  limited_ = true;
}

HandshakeSession::State HandshakeSession::advance() {
  if (handshake_.secret().tls() && !encrypted_)
    if (const State state = encrypt(); state != State::done) return state;
  while (true) {
    if (handshake_.is_listener() || handshake_.received_any()) limit_from_now();
    const IoResult flushed = flush(socket_view());
    if (flushed.state == IoState::closed) return broken(flushed.problem);
    if (const ConstBytes out = handshake_.to_send(); !out.empty()) {
      const iovec part{const_cast<std::byte*>(out.data()), out.size()};
      const IoResult r = write_some(socket_view(), {&part, 1});
      if (r.state == IoState::closed) return handshake_.failure() ? give_up(Kind::corrupt, handshake_.failure()->what) : broken(r.problem);
      if (r.state == IoState::moved) {
        handshake_.sent(r.bytes);
        continue;
      }
    } else if (flushed.state == IoState::moved) {
      if (handshake_.failure()) return give_up(handshake_.failure()->kind, handshake_.failure()->what);
      if (handshake_.done()) return State::done;
    }
    if (const Bytes space = handshake_.space(); !space.empty()) {
      const IoResult r = read_some(socket_view(), space);
      if (r.state == IoState::closed) return broken(r.problem);
      if (r.state == IoState::moved) {
        const bool unknown = !handshake_.proof_seen();
        handshake_.advance(r.bytes);
        if (unknown && handshake_.proof_seen()) return late_or_going();  // the Acceptor decides when to go on with it
        continue;
      }
    }
    return late_or_going();
  }
}

ControlConnection HandshakeSession::take() {
  return ControlConnection(std::make_unique<ControlConnection::Impl>(std::move(socket_), std::move(tls_), std::move(where_),
                                                                     handshake_.peer(), handshake_.outgoing(), handshake_.incoming()));
}

}  // namespace cohort::net
