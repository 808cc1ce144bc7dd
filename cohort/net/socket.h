// Sockets the way this room uses them: non-blocking, closed on exec, every wait with a deadline.
// Threads: any. Failure: Kind::system. Nothing here knows what the bytes mean.
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/net/address.h"

namespace cohort::net {

Fd open_socket(int family);
// Non-blocking, no delay for small frames (tcp), keepalive that notices a vanished host within kDeadHost while the stream is idle.
// Not TCP_USER_TIMEOUT: it also kills the connection to a healthy process that is too busy to read for that long (zero window).
void prepare_socket(int fd);
inline constexpr Seconds kDeadHost{3};
// The peer's kernel has answered neither bytes on their way nor probes for so long; zero: it has answered the last but one.
Seconds unanswered_for(int fd);
inline bool host_is_silent(int fd) { return unanswered_for(fd) >= kDeadHost; }
inline constexpr Seconds kLastHope{15};  // for a stream whose host answers otherwise
// Lets keepalive go on probing for so long, where somebody looks at unanswered_for() himself.
void keep_probing(int fd, Seconds limit);
bool connection_is_over(int fd);  // reset, or closed on both sides: what is unsent stays so

bool peer_is_local(int fd);  // on this host, as far as addresses tell: loopback, unix, or both ends have the same address

// poll(2) on one socket; false when the deadline passed first. A signal or an error on the socket counts as ready.
bool wait_ready(int fd, short events, Deadline deadline);

enum class Io : unsigned char { moved, later, closed };  // closed: end of stream or a broken connection, see problem
struct IoResult {
  Io state = Io::later;
  std::size_t bytes = 0;
  int problem = 0;  // errno when closed by an error, 0 at a plain end of stream
};

// A connection as its users borrow it: the descriptor to poll, and the TLS session its bytes go through where there is one. A plain
// descriptor is one, too. These four are the only places where bytes of a peer are read and written.
class Tls;
struct Connection {
  Connection(int descriptor, Tls* session = nullptr) : fd(descriptor), tls(session) {}  // NOLINT(google-explicit-constructor)
  int fd;
  Tls* tls;
};
IoResult read_some(Connection from, Bytes into);
IoResult read_parts(Connection from, std::span<const iovec> into);  // one after the other, as far as they come
IoResult write_some(Connection to, std::span<const iovec> parts, int flags = 0);
IoResult flush(Connection to);          // what write_some has taken and TLS still keeps. moved: nothing is left (of a plain one: always)
bool holds_bytes(Connection from);      // read_some finds some that poll(2) does not see
std::string problem_text(int problem);  // "closed the connection", or the errno's words

}  // namespace cohort::net
