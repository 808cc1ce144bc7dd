// Whether a host is there although a stream to it has said nothing for a while, which happens where packets are lost: calls at the same
// address, which nobody need take. The kernel of a host that is up and can be reached answers a call to any port, by a refusal at least;
// each call is another chance, while a stream tries again ever more rarely. Owner: who watches the stream. Threads: one. Failure: none;
// where no call can be made nobody answers.
#pragma once
#include <deque>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"

namespace cohort::net {

class Knock {
 public:
  void call(int stream);  // two more calls to where this stream leads
  bool answered();        // one of them was, since this was asked last

 private:
  struct Call {
    Fd fd;
    Deadline until;
  };
  std::deque<Call> calls_;
};

}  // namespace cohort::net
