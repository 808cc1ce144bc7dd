#include "cohort/net/auth/dialer.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

constexpr Seconds kFirstBackoff{0.005};
constexpr Seconds kLongestBackoff{0.25};  // a listener that comes late is found within this
// When a SYN is lost, or the accept queue is full, the kernel itself retransmits after 1, 3 and 7 s.
constexpr Seconds kFirstAttempt{0.1};
constexpr Seconds kLongestAttempt{2};
constexpr int kCuts = 3;  // a listener closes on a wrong key, but also under a flood of connections: try again before giving up

}  // namespace

Dialer::Dialer(Address to, const Secret& secret, Hello mine, Admit admit, Deadline deadline)
    : to_(std::move(to)),
      secret_(secret),
      mine_(std::move(mine)),
      admit_(std::move(admit)),
      deadline_(deadline),
      backoff_(kFirstBackoff),
      attempt_(kFirstAttempt) {
  if (secret_.empty()) throw_failure(Kind::usage, "connecting to {} needs the job's secret, and none was given", to_.text());
  retry_ = Deadline::in(Seconds{0});
}

int Dialer::fd() const { return handshake_session_ ? handshake_session_->fd() : connecting_.get(); }
short Dialer::events() const { return handshake_session_ ? handshake_session_->events() : POLLOUT; }

Deadline Dialer::look_again() const {
  if (handshake_session_) return handshake_session_->limit();
  return deadline_.sooner(connecting_ ? attempt_until_ : retry_);
}

void Dialer::pause(std::string why) {
  problem_ = std::move(why);
  connecting_.reset();
  handshake_session_.reset();
  retry_ = Deadline::in(backoff_);
  backoff_ = std::min(backoff_ * 2, kLongestBackoff);
}

void Dialer::failed(int error) {
  if (error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH)
    unreachable_since_.reset();  // it answers, or the problem is local
  pause(std::strerror(error));
}

void Dialer::start() {
  if (!unreachable_since_) unreachable_since_ = Clock::now();
  try {
    const SocketAddress where = SocketAddress::of(to_);
    connecting_ = open_socket(where.storage.ss_family);
    if (::connect(connecting_.get(), where.get(), where.length) == 0) return connected();
    if (errno != EINPROGRESS) return failed(errno);
    attempt_until_ = Deadline::in(attempt_);
    attempt_ = std::min(attempt_ * 2, kLongestAttempt);
  } catch (const Failure& f) {
    if (f.kind() == Kind::usage) throw;
    unreachable_since_.reset();
    pause(f.what());  // a name that does not resolve yet
  }
}

void Dialer::connected() {
  unreachable_since_.reset();
  prepare_socket(connecting_.get());
  handshake_session_ = std::make_unique<HandshakeSession>(std::move(connecting_), to_.text(),
                                                          Handshake(Handshake::Side::dialer, secret_, mine_, admit_), deadline_);
}

std::optional<ControlConnection> Dialer::advance() {
  if (!handshake_session_ && !connecting_ && retry_.passed()) start();
  if (connecting_) {
    pollfd p{connecting_.get(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&p, 1, 0) > 0) {
      if (getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      error == 0 ? connected() : failed(error);
    } else if (attempt_until_.passed()) {
      start();
    }
  }
  if (handshake_session_) {
    const HandshakeSession::State state = handshake_session_->advance();
    if (state == HandshakeSession::State::done) return handshake_session_->take();
    if (state == HandshakeSession::State::failed) {
      const Error why = handshake_session_->error();
      const bool final = !handshake_session_->cut() || (why.kind == Kind::corrupt && ++cuts_ >= kCuts);
      if (final || deadline_.passed()) throw Failure{why};
      pause(why.what);
    }
  }
  if (!deadline_.passed()) return std::nullopt;
  throw_failure(Kind::timeout, "no process of this job answered at {} in time (last attempt: {})", to_.text(),
                problem_.empty() ? "still connecting" : problem_);
}

}  // namespace cohort::net
