#include "cohort/net/socket/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/net/socket/tls.h"

namespace cohort::net {
namespace {

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

bool is_tcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

IoResult outcome(ssize_t n) {
  if (n > 0) return {IoState::moved, static_cast<std::size_t>(n), 0};
  if (n == 0) return {IoState::closed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {IoState::later, 0, 0};
  return {IoState::closed, 0, errno};
}

}  // namespace

Fd open_socket(int family) {
  Fd fd{::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) throw_system("socket");
  // A connection created under a pacing congestion control (bbr) stays paced whatever is set later: start without one. Accepted sockets
  // inherit it from the listener. Best effort: without cubic the system's default stays.
  if (family != AF_UNIX) setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
  return fd;
}

void prepare_socket(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) throw_system("fcntl of a socket");
  if (!is_tcp(fd)) return;
  // Best effort: the connection works without any of these.
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(kDeadHost.count()) - 1);
}

Seconds unanswered_for(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return Seconds{0};
  // A peer with a full receive window acknowledges every probe, which resets both counters.
  const bool unanswered = info.tcpi_retransmits >= 2 || info.tcpi_probes >= 2;
  return unanswered ? Seconds{info.tcpi_last_ack_recv / 1e3} : Seconds{0};
}

void keep_probing(int fd, Seconds limit) {
  if (is_tcp(fd)) set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(limit.count()));
}

bool connection_is_over(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE;
}

bool peer_is_local(int fd) {
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) return false;
  const Address there = peer.address();
  return there.is_loopback() || there.host == local_address(fd).host;
}

bool wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, deadline.left_ms());
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw_system("poll");
    if (deadline.passed()) return false;
  }
}

IoResult read_some(SocketView from, Bytes into) {
  const iovec part{into.data(), into.size()};
  return read_parts(from, {&part, 1});
}

IoResult read_parts(SocketView from, std::span<const iovec> into) {
  if (from.tls != nullptr) return from.tls->read(into);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(into.data());  // recvmsg writes to the buffers, not to the iovec
  message.msg_iovlen = into.size();
  return outcome(recvmsg(from.fd, &message, 0));
}

IoResult write_some(SocketView to, std::span<const iovec> parts, int flags) {
  if (to.tls != nullptr) return to.tls->write(parts);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // sendmsg only reads it
  message.msg_iovlen = parts.size();
  return outcome(sendmsg(to.fd, &message, MSG_NOSIGNAL | flags));
}

IoResult flush(SocketView to) { return to.tls != nullptr && to.tls->unsent() ? to.tls->flush() : IoResult{IoState::moved, 0, 0}; }

bool holds_bytes(SocketView from) { return from.tls != nullptr && from.tls->holds(); }

std::string problem_text(int problem) { return problem == 0 ? "closed the connection" : std::strerror(problem); }

}  // namespace cohort::net
