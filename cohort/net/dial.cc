#include "cohort/net/dial.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cohort/net/socket.h"

namespace cohort::net {
namespace {

constexpr Seconds kFirstPause{0.005};
constexpr Seconds kLongestPause{0.25};  // a listener that comes late is found within this
// A first packet is lost, or its listener's queue is full: the kernel itself asks again after 1, 3 and 7 s.
constexpr Seconds kFirstRinging{0.1};
constexpr Seconds kLongestRinging{2};
constexpr int kCuts = 3;  // a listener hangs up on a wrong key, but also when strangers crowd its door: ask again before giving up

}  // namespace

Dial::Dial(Address to, const Secret& secret, Hello mine, Admit admit, Deadline deadline)
    : to_(std::move(to)),
      secret_(secret),
      mine_(std::move(mine)),
      admit_(std::move(admit)),
      deadline_(deadline),
      backoff_(kFirstPause),
      ringing_(kFirstRinging) {
  if (secret_.empty()) throw_failure(Kind::usage, "connecting to {} needs the job's secret, and none was given", to_.text());
  retry_ = Deadline::in(Seconds{0});
}

int Dial::fd() const { return greeting_ ? greeting_->fd() : connecting_.get(); }
short Dial::events() const { return greeting_ ? greeting_->events() : POLLOUT; }

Deadline Dial::look_again() const {
  if (greeting_) return greeting_->limit();
  return deadline_.sooner(connecting_ ? unanswered_ : retry_);
}

void Dial::pause(std::string why) {
  problem_ = std::move(why);
  connecting_.reset();
  greeting_.reset();
  retry_ = Deadline::in(backoff_);
  backoff_ = std::min(backoff_ * 2, kLongestPause);
}

void Dial::failed(int error) {
  if (error != ETIMEDOUT && error != EHOSTUNREACH && error != ENETUNREACH) unheard_since_.reset();  // it answers, or the trouble is ours
  pause(std::strerror(error));
}

void Dial::start() {
  if (!unheard_since_) unheard_since_ = Clock::now();
  try {
    const SocketAddress where = SocketAddress::of(to_);
    connecting_ = open_socket(where.storage.ss_family);
    if (::connect(connecting_.get(), where.get(), where.length) == 0) return connected();
    if (errno != EINPROGRESS) return failed(errno);
    unanswered_ = Deadline::in(ringing_);
    ringing_ = std::min(ringing_ * 2, kLongestRinging);
  } catch (const Failure& f) {
    if (f.kind() == Kind::usage) throw;
    unheard_since_.reset();
    pause(f.what());  // a name that does not resolve yet
  }
}

void Dial::connected() {
  unheard_since_.reset();
  prepare_socket(connecting_.get());
  greeting_ =
      std::make_unique<Greeting>(std::move(connecting_), to_.text(), Handshake(Handshake::Side::dialer, secret_, mine_, admit_), deadline_);
}

std::optional<Wire> Dial::advance() {
  if (!greeting_ && !connecting_ && retry_.passed()) start();
  if (connecting_) {
    pollfd p{connecting_.get(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (poll(&p, 1, 0) > 0) {
      if (getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      error == 0 ? connected() : failed(error);
    } else if (unanswered_.passed()) {
      start();
    }
  }
  if (greeting_) {
    const Greeting::State state = greeting_->advance();
    if (state == Greeting::State::done) return greeting_->take();
    if (state == Greeting::State::failed) {
      const Error why = greeting_->error();
      const bool final = !greeting_->cut() || (why.kind == Kind::corrupt && ++cuts_ >= kCuts);
      if (final || deadline_.passed()) throw Failure{why};
      pause(why.what);
    }
  }
  if (!deadline_.passed()) return std::nullopt;
  throw_failure(Kind::timeout, "no process of this job answered at {} in time (last attempt: {})", to_.text(),
                problem_.empty() ? "still connecting" : problem_);
}

}  // namespace cohort::net
