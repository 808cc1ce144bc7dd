// Connecting to a listener: resolve, connect, handshake, and again while nobody listens there yet. Many can run at once in one thread:
// poll fd() (-1 while backing off between attempts) for events() until look_again(), then advance().
// Owner: ControlConnection::connect, connect_peers. Threads: one at a time. Failure: advance() throws; Kind::timeout names the last
// attempt's problem.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "cohort/net/auth/handshake_session.h"

namespace cohort::net {

class Dialer {
 public:
  Dialer(Address to, const Secret& secret, Hello mine, Admit admit, Deadline deadline);
  std::optional<ControlConnection> advance();  // non-blocking (but for name resolution)
  int fd() const;
  short events() const;
  Deadline look_again() const;
  const Address& address() const { return to_; }
  const std::string& problem() const { return problem_; }  // of the last attempt, for messages; empty while none has failed
  // Its kernel has answered no SYN for that long. A process that is late or busy does not matter: the kernel completes or refuses
  // connections without it.
  bool unreachable_for(Seconds limit) const { return unreachable_since_ && Clock::now() - *unreachable_since_ >= limit; }

 private:
  void start();
  void connected();
  void pause(std::string why);
  void failed(int error);

  const Address to_;
  const Secret secret_;
  const Hello mine_;
  const Admit admit_;
  const Deadline deadline_;
  std::optional<Clock::time_point> unreachable_since_;
  Fd connecting_;                                        // connect(2) in progress ..
  std::unique_ptr<HandshakeSession> handshake_session_;  // .. or the handshake; neither: backing off
  Deadline retry_;
  Deadline attempt_until_;  // when a connect(2) in progress is given up for another
  Seconds backoff_, attempt_;
  int cuts_ = 0;  // handshakes in which the listener closed the connection
  std::string problem_;
};

}  // namespace cohort::net
