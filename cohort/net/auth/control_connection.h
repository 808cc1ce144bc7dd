// A ControlConnection is an authenticated, framed control stream to one process: it carries rendezvous, liveness, goodbyes and aborts,
// and the tcp transport's data once both sides have agreed.
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
#include "cohort/net/auth/handshake.h"
#include "cohort/net/crypto/secret.h"
#include "cohort/net/frame/frame.h"
#include "cohort/net/socket/address.h"
#include "cohort/net/socket/socket.h"

namespace cohort::net {

class ControlConnection {
 public:
  // Both return a ControlConnection on which both sides have proved that they know the secret. The handshake takes at most 5 s, and 4 KiB
  // before anything is allocated, whatever the deadline. connect tries again until the deadline while nobody listens there.
  static ControlConnection connect(const Address& to, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit = {});
  // One connection, whose peer can block us for 5 s: a port that is open to the network needs an Acceptor (acceptor.h).
  static ControlConnection accept(Fd socket, const Secret& secret, const Hello& mine, Deadline deadline, const Admit& admit = {});

  ControlConnection(ControlConnection&&) noexcept;
  ControlConnection& operator=(ControlConnection&&) noexcept;
  ~ControlConnection();

  const Hello& peer() const;
  const std::string& where() const;  // the peer's address, for messages
  SocketView socket_view() const;    // borrowed, as long as this ControlConnection lives
  int fd() const;                    // nothing is read ahead, so another reader can take over the socket between two frames
  // With MAC and sequence number; type 1 to 0x7fff, body at most 1 MiB. A send that times out in the middle breaks the connection.
  void send(std::uint16_t type, ConstBytes body, Deadline deadline);
  Frame recv(Deadline deadline);  // Kind::timeout leaves the connection usable: the next recv continues where this one stopped
  bool readable() const;          // recv would find at least one byte (or the end) at once

 private:
  friend class HandshakeSession;
  struct Impl;
  explicit ControlConnection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::net
