// Reaching a listener: resolve, connect, shake hands, and again while nobody listens there yet. Many can go on at once in one thread:
// poll fd() (-1 while pausing between attempts) for events() until look_again(), then advance().
// Owner: Wire::connect, connect_mesh. Threads: one at a time. Failure: advance() throws; Kind::timeout names the last attempt's problem.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "cohort/net/greeting.h"

namespace cohort::net {

class Dial {
 public:
  Dial(Address to, const Secret& secret, Hello mine, Admit admit, Deadline deadline);
  std::optional<Wire> advance();  // moves what moves without sleeping (a name is resolved while the caller waits)
  int fd() const;
  short events() const;
  Deadline look_again() const;
  const Address& address() const { return to_; }
  const std::string& problem() const { return problem_; }  // of the last attempt, for messages; empty while none has failed
  // Not even its kernel has answered for that long. A process that is late or busy answers: its listener takes or refuses calls without it.
  bool unheard_for(Seconds limit) const { return unheard_since_ && Clock::now() - *unheard_since_ >= limit; }

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
  std::optional<Clock::time_point> unheard_since_;
  Fd connecting_;                       // connect(2) under way ..
  std::unique_ptr<Greeting> greeting_;  // .. or the handshake; neither: pausing
  Deadline retry_;
  Deadline unanswered_;  // when a call that is under way is given up for another
  Seconds backoff_, ringing_;
  int cuts_ = 0;  // times the listener hung up on us in the middle
  std::string problem_;
};

}  // namespace cohort::net
