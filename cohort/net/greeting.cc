#include "cohort/net/greeting.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cohort/net/socket.h"
#include "cohort/net/wire_impl.h"

namespace cohort::net {

Greeting::Greeting(Fd socket, std::string where, Handshake handshake, Deadline deadline)
    : socket_(std::move(socket)), where_(std::move(where)), handshake_(std::move(handshake)), limit_(deadline) {}

short Greeting::events() const {
  const bool unsent = tls_ ? tls_->unsent() : false;
  return static_cast<short>(unsent || (!handshake_.to_send().empty() && (encrypted_ || !handshake_.secret().tls())) ? POLLIN | POLLOUT
                                                                                                                    : POLLIN);
}

Greeting::State Greeting::give_up(Kind kind, std::string what) {
  error_ = {kind, fmt::format("{}: {}", where_, what), kNoRank};
  return State::failed;
}

Greeting::State Greeting::broken(int problem) {
  cut_ = true;
  if (!handshake_.heard() && !encrypted_) return give_up(Kind::peer_lost, problem_text(problem) + " before a word was said");
  return give_up(Kind::corrupt, problem_text(problem) +
                                    " in the middle of the handshake: it holds another job secret, or died; check that all processes "
                                    "got the same secret");
}

Greeting::State Greeting::late_or_going() {
  if (!limit_.passed()) return State::going;
  return give_up(Kind::timeout, "did not finish the handshake in time");
}

Greeting::State Greeting::met_plain_peer() {
  return give_up(Kind::corrupt, "speaks without TLS and this process demands it: give --tls (COHORT_TLS=true) to every process of the job");
}

// A session costs memory: a listener makes one for who begins like one only, and tells the others apart by their first byte.
std::optional<Greeting::State> Greeting::look_before_tls() {
  std::byte first{};
  const ssize_t n = recv(socket_.get(), &first, 1, MSG_PEEK);
  if (n > 0 || handshake_.is_listener()) limit_from_now();
  if (tls_ || !handshake_.is_listener()) return std::nullopt;
  if (n == 0) return broken(0);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? late_or_going() : broken(errno);
  if (Tls::looks_like(first)) return std::nullopt;
  if (!is_opening_byte(first)) return give_up(Kind::corrupt, "speaks another protocol: its first byte is no TLS greeting");
  const ConstBytes words = Tls::refusal();
  const iovec part{const_cast<std::byte*>(words.data()), words.size()};
  write_some(socket_.get(), {&part, 1});  // by which it knows us
  return met_plain_peer();
}

Greeting::State Greeting::encrypt() {
  if (const auto known = look_before_tls()) return *known;
  const auto side = handshake_.is_listener() ? Tls::Side::listener : Tls::Side::dialer;
  if (!tls_) tls_ = std::make_unique<Tls>(socket_.get(), side, handshake_.secret());
  const IoResult r = tls_->shake();
  if (r.state == Io::later) return late_or_going();
  if (r.state == Io::closed && r.problem != EBADMSG) return broken(r.problem);
  if (r.state == Io::closed && tls_->met_other_protocol()) return met_plain_peer();
  if (r.state == Io::closed)
    return give_up(Kind::corrupt,
                   fmt::format("no TLS with it ({}): it holds another job secret; check that all processes got the same", tls_->why()));
  encrypted_ = true;
  return State::done;
}

void Greeting::limit_from_now() {
  if (limited_) return;
  limit_ = limit_.sooner(Deadline::in(kHandshakeLimit));
  limited_ = true;
}

Greeting::State Greeting::advance() {
  if (handshake_.secret().tls() && !encrypted_)
    if (const State state = encrypt(); state != State::done) return state;
  while (true) {
    if (handshake_.is_listener() || handshake_.heard()) limit_from_now();
    const IoResult flushed = flush(connection());
    if (flushed.state == Io::closed) return broken(flushed.problem);
    if (const ConstBytes out = handshake_.to_send(); !out.empty()) {
      const iovec part{const_cast<std::byte*>(out.data()), out.size()};
      const IoResult r = write_some(connection(), {&part, 1});
      if (r.state == Io::closed) return handshake_.failure() ? give_up(Kind::corrupt, handshake_.failure()->what) : broken(r.problem);
      if (r.state == Io::moved) {
        handshake_.sent(r.bytes);
        continue;
      }
    } else if (flushed.state == Io::moved) {
      if (handshake_.failure()) return give_up(handshake_.failure()->kind, handshake_.failure()->what);
      if (handshake_.done()) return State::done;
    }
    if (const Bytes room = handshake_.space(); !room.empty()) {
      const IoResult r = read_some(connection(), room);
      if (r.state == Io::closed) return broken(r.problem);
      if (r.state == Io::moved) {
        const bool unknown = !handshake_.vouched();
        handshake_.advance(r.bytes);
        if (unknown && handshake_.vouched()) return late_or_going();  // a door goes on with it when its turn has come
        continue;
      }
    }
    return late_or_going();
  }
}

Wire Greeting::take() {
  return Wire(std::make_unique<Wire::Impl>(std::move(socket_), std::move(tls_), std::move(where_), handshake_.peer(), handshake_.outgoing(),
                                           handshake_.incoming()));
}

}  // namespace cohort::net
