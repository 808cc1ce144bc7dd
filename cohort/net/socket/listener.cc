#include "cohort/net/socket/listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/error.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {
namespace {

constexpr int kBacklog = 1024;  // as many ranks as may start in the same moment

}  // namespace

Listener listen_on(const Address& address, const Secret& secret) {
  if (!address.is_loopback() && secret.empty())
    throw_failure(Kind::usage,
                  "refusing to listen on {} without a job secret: anybody on the network could join; listen on 127.0.0.1 or give a secret",
                  address.text());
  const SocketAddress where = SocketAddress::of(address);
  if (!where.address().is_loopback() && secret.empty())
    throw_failure(Kind::usage, "refusing to listen on {} ({}) without a job secret", address.text(), where.address().text());
  Listener out;
  out.fd = open_socket(where.storage.ss_family);
  const int yes = 1;
  if (address.is_unix())
    fchmod(out.fd.get(), 0600);  // becomes the mode of the socket's file
  else
    setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(out.fd.get(), where.get(), where.length) != 0) throw_system(fmt::format("cannot listen on {}", address.text()));
  if (::listen(out.fd.get(), kBacklog) != 0) throw_system(fmt::format("cannot listen on {}", address.text()));
  out.address = address.is_unix() ? address : local_address(out.fd.get());
  return out;
}

Fd accept_one(const Listener& listener, Deadline deadline) {
  while (true) {
    Fd fd{::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (fd) return fd;
    const bool later = errno == EAGAIN || errno == EINTR;
    // Errors of a connection that died in the queue, not of the listener.
    const bool theirs = errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN || errno == EHOSTUNREACH || errno == ENETUNREACH;
    if (!later && !theirs) throw_system(fmt::format("accepting connections on {}", listener.address.text()));
    if (theirs) continue;
    if (!wait_ready(listener.fd.get(), POLLIN, deadline)) return {};
  }
}

}  // namespace cohort::net
