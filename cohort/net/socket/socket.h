// Sockets as this module uses them: non-blocking, closed on exec, every wait with a deadline.
// Threads: any. Failure: Kind::system. Nothing here knows what the bytes mean.
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/net/socket/address.h"

namespace cohort::net {

Fd open_socket(int family);
// Non-blocking, no delay for small frames (tcp), keepalive that notices a vanished host within kDeadHost while the stream is idle.
// Not TCP_USER_TIMEOUT: it also kills the connection to a healthy process that is too busy to read for that long (zero window).
void prepare_socket(int fd);
inline constexpr Seconds kDeadHost{3};
// How long the peer's kernel has acknowledged neither data nor probes; zero while at most one is unacknowledged.
Seconds unanswered_for(int fd);
inline bool host_is_silent(int fd) { return unanswered_for(fd) >= kDeadHost; }
inline constexpr Seconds kMaxSilence{15};  // of a stream whose host still answers probes (tcp/host_probe.h)
// Extends keepalive to `limit`, for callers that check unanswered_for() themselves.
void keep_probing(int fd, Seconds limit);
bool connection_is_over(int fd);  // reset, or closed on both sides: unsent bytes will never leave

bool peer_is_local(int fd);  // on this host, judging by addresses: loopback, unix, or both ends have the same address

// poll(2) on one socket; false when the deadline passed first. A signal or an error on the socket counts as ready.
bool wait_ready(int fd, short events, Deadline deadline);

enum class IoState : unsigned char { moved, later, closed };  // closed: end of stream or a broken connection, see problem
struct IoResult {
  IoState state = IoState::later;
  std::size_t bytes = 0;
  int problem = 0;  // errno when closed by an error, 0 at a plain end of stream
};

// A borrowed connection: the descriptor to poll, and its TLS session, if any. Converts from a plain descriptor. The functions below are the
// only places where bytes of a peer are read and written.
class Tls;
struct SocketView {
  SocketView(int descriptor, Tls* session = nullptr) : fd(descriptor), tls(session) {}  // NOLINT(google-explicit-constructor)
  int fd;
  Tls* tls;
};
IoResult read_some(SocketView from, Bytes into);
IoResult read_parts(SocketView from, std::span<const iovec> into);  // scatter read: fills the parts in order with what is there
IoResult write_some(SocketView to, std::span<const iovec> parts, int flags = 0);
IoResult flush(SocketView to);          // of what write_some took and TLS still buffers. moved: nothing is left (without TLS: always)
bool holds_bytes(SocketView from);      // TLS has decrypted bytes that poll(2) does not report
std::string problem_text(int problem);  // "closed the connection", or the errno's text

}  // namespace cohort::net
