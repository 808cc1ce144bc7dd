#include "cohort/net/wire.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>

#include "cohort/net/dial.h"
#include "cohort/net/greeting.h"
#include "cohort/net/socket.h"
#include "cohort/net/wire_impl.h"

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

Wire::Wire(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Wire::Wire(Wire&&) noexcept = default;
Wire& Wire::operator=(Wire&&) noexcept = default;
Wire::~Wire() = default;
const Hello& Wire::peer() const { return impl_->peer; }
const std::string& Wire::where() const { return impl_->where; }
int Wire::fd() const { return impl_->socket.get(); }
Connection Wire::connection() const { return impl_->connection(); }

Wire Wire::connect(const Address& to, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit) {
  Dial dial(to, secret, mine, admit, deadline);
  while (true) {
    if (auto wire = dial.advance()) return std::move(*wire);
    pollfd p{dial.fd(), dial.events(), 0};
    if (poll(&p, 1, dial.look_again().left_ms()) < 0 && errno != EINTR) throw_system("poll");
  }
}

Wire Wire::accept(Fd socket, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit) {
  prepare_socket(socket.get());
  std::string where = peer_text(socket.get());
  Greeting greeting(std::move(socket), std::move(where), Handshake(Handshake::Side::listener, secret, mine, admit), deadline);
  while (true) {
    const Greeting::State state = greeting.advance();
    if (state == Greeting::State::done) return greeting.take();
    if (state == Greeting::State::failed) throw Failure{greeting.error()};
    wait_ready(greeting.fd(), greeting.events(), greeting.limit());
  }
}

void Wire::send(std::uint16_t type, ConstBytes body, Deadline deadline) {
  if (impl_->send_broken) throw Failure{*impl_->send_broken};
  Seal around = seal(impl_->outgoing, type, impl_->sequence, body);
  iovec store[] = {part_of(around.header), part_of(body), part_of(around.mac)};
  std::span<iovec> parts(store);
  bool begun = false;
  while (true) {
    const IoResult r = parts.empty() ? flush(connection()) : write_some(connection(), parts);
    if (parts.empty() && r.state == Io::moved) break;
    if (r.state == Io::closed)
      break_with(impl_->send_broken, {Kind::peer_lost, fmt::format("{}: {}", impl_->name(), problem_text(r.problem)), peer().rank});
    parts = drop(parts, r.bytes);
    begun = begun || r.bytes > 0;
    if (r.state == Io::moved || wait_ready(fd(), POLLOUT, deadline)) continue;
    Error late{Kind::timeout,
               fmt::format("{}: a control frame of {} bytes could not be sent in time; is it stopped?", impl_->name(), body.size()),
               peer().rank};
    if (begun) break_with(impl_->send_broken, std::move(late));
    throw Failure{std::move(late)};
  }
  ++impl_->sequence;
}

Frame Wire::recv(Deadline deadline) {
  if (impl_->recv_broken) throw Failure{*impl_->recv_broken};
  while (true) {
    const IoResult r = read_some(connection(), impl_->reader.space());
    if (r.state == Io::closed)
      break_with(impl_->recv_broken, {Kind::peer_lost, fmt::format("{}: {}", impl_->name(), problem_text(r.problem)), peer().rank});
    if (r.state == Io::moved) {
      try {
        if (auto frame = impl_->reader.advance(r.bytes)) return std::move(*frame);
      } catch (const Failure& f) {
        break_with(impl_->recv_broken, {f.kind(), fmt::format("{}: {}", impl_->name(), f.what()), peer().rank});
      }
      continue;
    }
    if (!wait_ready(fd(), POLLIN, deadline))
      throw Failure{{Kind::timeout, fmt::format("{}: no control frame came in time", impl_->name()), peer().rank}};
  }
}

bool Wire::readable() const {
  if (holds_bytes(connection())) return true;
  pollfd p{fd(), POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

}  // namespace cohort::net
