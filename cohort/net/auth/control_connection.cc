#include "cohort/net/auth/control_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cohort/net/auth/control_connection_impl.h"
#include "cohort/net/auth/dialer.h"
#include "cohort/net/auth/handshake_session.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

[[noreturn]] void break_with(std::optional<Error>& broken, Error error) {
  broken = error;
  throw Failure{std::move(error)};
}

// Drops the first `bytes` from the front of the parts.
std::span<iovec> drop(std::span<iovec> parts, std::size_t bytes) {
  while (!parts.empty() && bytes >= parts.front().iov_len) {
    bytes -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (parts.empty()) return parts;
  parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + bytes;
  parts.front().iov_len -= bytes;
  return parts;
}

iovec part_of(ConstBytes bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

}  // namespace

ControlConnection::ControlConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlConnection::ControlConnection(ControlConnection&&) noexcept = default;
ControlConnection& ControlConnection::operator=(ControlConnection&&) noexcept = default;
ControlConnection::~ControlConnection() = default;
const Hello& ControlConnection::peer() const { return impl_->peer; }
const std::string& ControlConnection::where() const { return impl_->where; }
int ControlConnection::fd() const { return impl_->socket.get(); }
SocketView ControlConnection::socket_view() const { return impl_->socket_view(); }

ControlConnection ControlConnection::connect(const Address& to, const Secret& secret, const Hello& mine, Deadline deadline,
                                             const Admit& admit) {
  Dialer dialer(to, secret, mine, admit, deadline);
  while (true) {
    if (auto connection = dialer.advance()) return std::move(*connection);
    pollfd p{dialer.fd(), dialer.events(), 0};
    if (poll(&p, 1, dialer.look_again().left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }
}

ControlConnection ControlConnection::accept(Fd socket, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit) {
  prepare_socket(socket.get());
  std::string where = peer_text(socket.get());
  HandshakeSession session(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret, mine, admit), deadline);
  while (true) {
    const HandshakeSession::State state = session.advance();
    if (state == HandshakeSession::State::done) return session.take();
    if (state == HandshakeSession::State::failed) throw Failure{session.error()};
    wait_ready(session.fd(), session.events(), session.limit());
  }
}

void ControlConnection::send(std::uint16_t type, ConstBytes body, Deadline deadline) {
  if (impl_->send_broken) throw Failure{*impl_->send_broken};
  ControlEnvelope around = seal_control(impl_->outgoing, type, impl_->sequence, body);
  iovec store[] = {part_of(around.header), part_of(body), part_of(around.mac)};
  std::span<iovec> parts(store);
  bool begun = false;
  while (true) {
    const IoResult r = parts.empty() ? flush(socket_view()) : write_some(socket_view(), parts);
    if (parts.empty() && r.state == IoState::moved) break;
    if (r.state == IoState::closed)
      break_with(impl_->send_broken, {Kind::peer_lost, fmt::format("{}: {}", impl_->name(), problem_text(r.problem)), peer().rank});
    parts = drop(parts, r.bytes);
    begun = begun || r.bytes > 0;
    if (r.state == IoState::moved || wait_ready(fd(), POLLOUT, deadline)) continue;
    Error late{
        Kind::timeout,
        fmt::format("{}: a control frame of {} bytes could not be sent in time; is the process stopped?", impl_->name(), body.size()),
        peer().rank};
    if (begun) break_with(impl_->send_broken, std::move(late));
    throw Failure{std::move(late)};
  }
  ++impl_->sequence;
}

Frame ControlConnection::recv(Deadline deadline) {
  if (impl_->recv_broken) throw Failure{*impl_->recv_broken};
  while (true) {
    const IoResult r = read_some(socket_view(), impl_->reader.space());
    if (r.state == IoState::closed)
      break_with(impl_->recv_broken, {Kind::peer_lost, fmt::format("{}: {}", impl_->name(), problem_text(r.problem)), peer().rank});
    if (r.state == IoState::moved) {
      try {
        if (auto frame = impl_->reader.advance(r.bytes)) return std::move(*frame);
      } catch (const Failure& f) {
        break_with(impl_->recv_broken, {f.kind(), fmt::format("{}: {}", impl_->name(), f.what()), peer().rank});
      }
      continue;
    }
    if (!wait_ready(fd(), POLLIN, deadline))
      throw Failure{{Kind::timeout, fmt::format("{}: no control frame arrived in time", impl_->name()), peer().rank}};
  }
}

bool ControlConnection::readable() const {
  if (holds_bytes(socket_view())) return true;
  pollfd p{fd(), POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

}  // namespace cohort::net
