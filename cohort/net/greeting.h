// One handshake over one non-blocking socket, which its owner prepares (prepare_socket). Many can go on at once in one thread: poll fd()
// for events(), then advance(). Owner: Wire::accept, Dial, Door. Threads: one at a time. Failure: error(), naming the address; the socket
// is then closed by ~Greeting. Memory: fixed, about 1.5 KiB, until the peer has proved itself; with TLS its session besides, from the first
// bytes that look like it.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "cohort/base/deadline.h"
#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/net/handshake.h"
#include "cohort/net/tls.h"
#include "cohort/net/wire.h"

namespace cohort::net {

inline constexpr Seconds kHandshakeLimit{5};

class Greeting {
 public:
  Greeting(Fd socket, std::string where, Handshake handshake, Deadline deadline);
  enum class State : unsigned char { going, done, failed };
  State advance();  // moves what moves without sleeping
  int fd() const { return socket_.get(); }
  short events() const;
  Deadline limit() const { return limit_; }  // call advance() then, at the latest
  const Error& error() const { return error_; }
  bool vouched() const { return encrypted_ || handshake_.vouched(); }  // a listener: its caller seems to hold the secret
  ConstBytes peer_nonce() const { return handshake_.peer_nonce(); }    // .. by this
  bool cut() const { return cut_; }                                    // failed because the connection ended, not because of what was said
  Wire take();                                                         // once done

 private:
  State give_up(Kind kind, std::string what);
  State broken(int problem);
  State late_or_going();
  void limit_from_now();
  State encrypt();  // done: bytes go through TLS from here on
  std::optional<State> look_before_tls();
  State met_plain_peer();
  Connection connection() const { return {socket_.get(), encrypted_ ? tls_.get() : nullptr}; }

  Fd socket_;
  std::unique_ptr<Tls> tls_;  // where the secret asks for it; first it shakes hands itself
  bool encrypted_ = false;    // it has
  std::string where_;
  Handshake handshake_;
  Deadline limit_;
  bool limited_ = false;  // a dialer's five seconds begin when the listener answers: until then it may simply be busy
  bool cut_ = false;
  Error error_;
};

}  // namespace cohort::net
