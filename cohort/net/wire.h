// A Wire is an authenticated, framed control stream to one process: rendezvous, liveness, goodbyes and aborts travel on it,
// and the tcp transport's data once both sides agreed.
// Owner: whoever connected. Threads: one sender and one receiver at a time. Failure: Kind::corrupt (wrong key, bad frame, other
// version), Kind::peer_lost (closed), Kind::timeout; always naming the address. The bytes are described in docs/wire.md.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/base/bytes.h"
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/base/ids.h"
#include "cohort/net/address.h"
#include "cohort/net/frame.h"
#include "cohort/net/handshake.h"
#include "cohort/net/secret.h"
#include "cohort/net/socket.h"

namespace cohort::net {

class Wire {
 public:
  // Both give a Wire on which the peer has proved that it knows the secret, and we have proved it to them. The handshake takes at most
  // 5 s and 4 KiB before anything is allocated, whatever the deadline. connect tries again until the deadline while nobody listens there.
  static Wire connect(const Address& to, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit = {});
  // One connection, and whoever opened it can keep us for 5 s: a port that strangers can reach wants a Door (door.h).
  static Wire accept(Fd socket, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit = {});

  Wire(Wire&&) noexcept;
  Wire& operator=(Wire&&) noexcept;
  ~Wire();

  const Hello& peer() const;
  const std::string& where() const;  // the peer's address, for messages
  Connection connection() const;     // borrowed, as long as this Wire lives
  int fd() const;                    // no byte of the stream is ever read ahead, so the socket can be handed on between two frames
  // MAC'd, numbered; type 1 to 0x7fff, body at most 1 MiB. A send that met its deadline half-way breaks the wire.
  void send(std::uint16_t type, ConstBytes body, Deadline deadline);
  Frame recv(Deadline deadline);  // Kind::timeout leaves the wire usable: the next recv goes on where this one stopped
  bool readable() const;          // recv would find at least one byte (or the end) at once

 private:
  friend class Greeting;
  struct Impl;
  explicit Wire(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A listening socket. Loopback or a unix name unless told otherwise; any other address needs a non-empty secret.
struct Listener {
  Fd fd;
  Address address;  // with the port the system chose
};
Listener listen_on(const Address& address, const Secret& secret);
Fd accept_one(const Listener& listener, Deadline deadline);  // empty Fd when the deadline passed

}  // namespace cohort::net
