#include "cohort/net/tcp/host_probe.h"

#include <poll.h>

#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/socket/address.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {

void HostProbe::probe(int stream) {
  SocketAddress there;
  there.length = sizeof there.storage;
  if (getpeername(stream, reinterpret_cast<sockaddr*>(&there.storage), &there.length) != 0) return;
  for (int i = 0; i < 2; ++i) {
    Fd fd{::socket(there.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!fd) return;
    // An immediate refusal is an answer, too: poll(2) reports it.
    if (::connect(fd.get(), there.get(), there.length) != 0 && errno != EINPROGRESS && errno != ECONNREFUSED) continue;
    attempts_.push_back({std::move(fd), Deadline::in(kDeadHost)});
  }
}

bool HostProbe::answered() {
  bool any = false;
  std::erase_if(attempts_, [&](const Attempt& attempt) {
    pollfd one{attempt.fd.get(), POLLOUT, 0};
    if (poll(&one, 1, 0) <= 0) return attempt.until.passed();
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    any = any || error == 0 || error == ECONNREFUSED;
    return true;
  });
  return any;
}

}  // namespace cohort::net
