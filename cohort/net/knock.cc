#include "cohort/net/knock.h"

#include <poll.h>

#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/address.h"
#include "cohort/net/socket.h"

namespace cohort::net {

void Knock::call(int stream) {
  SocketAddress there;
  there.length = sizeof there.storage;
  if (getpeername(stream, reinterpret_cast<sockaddr*>(&there.storage), &there.length) != 0) return;
  for (int i = 0; i < 2; ++i) {
    Fd fd{::socket(there.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd) return;
    // Refused at once is an answer, too: poll(2) shows it.
    if (::connect(fd.get(), there.get(), there.length) != 0 && errno != EINPROGRESS && errno != ECONNREFUSED) continue;
    calls_.push_back({std::move(fd), Deadline::in(kDeadHost)});
  }
}

bool Knock::answered() {
  bool any = false;
  std::erase_if(calls_, [&](const Call& call) {
    pollfd one{call.fd.get(), POLLOUT, 0};
    if (poll(&one, 1, 0) <= 0) return call.until.passed();
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(call.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    any = any || error == 0 || error == ECONNREFUSED;
    return true;
  });
  return any;
}

}  // namespace cohort::net
