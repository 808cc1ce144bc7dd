// One handshake over one non-blocking socket, which its owner prepares (prepare_socket). Many can run at once in one thread: poll fd()
// for events(), then advance(). Owner: ControlConnection::accept, Dialer, Acceptor. Threads: one at a time. Failure: error(), naming the
// address; the socket is then closed by ~HandshakeSession. Memory: fixed, about 1.5 KiB, until the peer has authenticated; with TLS also
// its session, from the first bytes that look like TLS.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/net/auth/control_connection.h"
#include "cohort/net/auth/handshake.h"
#include "cohort/net/socket/tls.h"

namespace cohort::net {

inline constexpr Seconds kHandshakeLimit{5};

class HandshakeSession {
 public:
  HandshakeSession(Fd socket, std::string where, Handshake handshake, Deadline deadline);
  enum class State : unsigned char { going, done, failed };
  State advance();  // non-blocking
  int fd() const { return socket_.get(); }
  short events() const;
  Deadline limit() const { return limit_; }  // call advance() by then
  const Error& error() const { return error_; }
  bool proof_seen() const { return encrypted_ || handshake_.proof_seen(); }  // a listener: the hello of the peer carried a proof
  ConstBytes peer_nonce() const { return handshake_.peer_nonce(); }          // .. in this nonce
  bool cut() const { return cut_; }  // failed because the connection ended, not because of what the peer sent
  ControlConnection take();          // once done

 private:
  State give_up(Kind kind, std::string what);
  State broken(int problem);
  State late_or_going();
  void limit_from_now();
  State encrypt();  // done: bytes go through TLS from now on
  std::optional<State> check_first_byte();
  State fail_plain_peer();
  SocketView socket_view() const { return {socket_.get(), encrypted_ ? tls_.get() : nullptr}; }

  Fd socket_;
  std::unique_ptr<Tls> tls_;  // where the secret asks for it
  bool encrypted_ = false;    // TLS's own handshake is done
  std::string where_;
  Handshake handshake_;
  Deadline limit_;
  bool limited_ = false;  // a dialer's 5 s begin when the listener answers: until then that may simply be busy
  bool cut_ = false;
  Error error_;
};

}  // namespace cohort::net
