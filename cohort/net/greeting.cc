#include "cohort/net/greeting.h"

#include <fmt/format.h>
#include <poll.h>

#include "cohort/net/socket.h"
#include "cohort/net/wire_impl.h"

namespace cohort::net {

Greeting::Greeting(Fd socket, std::string where, Handshake handshake, Deadline deadline)
    : socket_(std::move(socket)), where_(std::move(where)), handshake_(std::move(handshake)), limit_(deadline) {
  prepare_socket(socket_.get());
}

short Greeting::events() const { return static_cast<short>(handshake_.to_send().empty() ? POLLIN : POLLIN | POLLOUT); }

Greeting::State Greeting::give_up(Kind kind, std::string what) {
  error_ = {kind, fmt::format("{}: {}", where_, what), kNoRank};
  return State::failed;
}

Greeting::State Greeting::broken(int problem) {
  cut_ = true;
  if (!handshake_.heard()) return give_up(Kind::peer_lost, problem_text(problem) + " before a word was said");
  return give_up(Kind::corrupt, problem_text(problem) +
                                    " in the middle of the handshake: it holds another job secret, or died; check that all processes "
                                    "got the same secret");
}

Greeting::State Greeting::advance() {
  while (true) {
    if (!limited_ && (handshake_.is_listener() || handshake_.heard())) {
      limit_ = limit_.sooner(Deadline::in(kHandshakeLimit));
      limited_ = true;
    }
    if (const ConstBytes out = handshake_.to_send(); !out.empty()) {
      const iovec part{const_cast<std::byte*>(out.data()), out.size()};
      const IoResult r = write_some(socket_.get(), {&part, 1});
      if (r.state == Io::closed) return handshake_.failure() ? give_up(Kind::corrupt, handshake_.failure()->what) : broken(r.problem);
      if (r.state == Io::moved) {
        handshake_.sent(r.bytes);
        continue;
      }
    } else {
      if (handshake_.failure()) return give_up(handshake_.failure()->kind, handshake_.failure()->what);
      if (handshake_.done()) return State::done;
    }
    if (const Bytes room = handshake_.space(); !room.empty()) {
      const IoResult r = read_some(socket_.get(), room);
      if (r.state == Io::closed) return broken(r.problem);
      if (r.state == Io::moved) {
        handshake_.advance(r.bytes);
        continue;
      }
    }
    if (!limit_.passed()) return State::going;
    return give_up(Kind::timeout, "did not finish the handshake in time");
  }
}

Wire Greeting::take() {
  return Wire(
      std::make_unique<Wire::Impl>(std::move(socket_), std::move(where_), handshake_.peer(), handshake_.outgoing(), handshake_.incoming()));
}

}  // namespace cohort::net
