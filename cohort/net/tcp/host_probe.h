// Whether a host is reachable although a stream to it has been silent for a while, as happens under packet loss: connection attempts to the
// same address, which nobody needs to accept. The kernel of a host that is up and reachable answers a SYN to any port, at least with a
// reset; each attempt is another chance, while a stream retransmits ever more rarely. Owner: the monitor of the stream. Threads: one.
// Failure: none; where no attempt can be made there is no answer.
#pragma once
#include <deque>

#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"

namespace cohort::net {

class HostProbe {
 public:
  void probe(int stream);  // two more attempts to the peer address of this stream
  bool answered();         // one of them was answered since the last call

 private:
  struct Attempt {
    Fd fd;
    Deadline until;
  };
  std::deque<Attempt> attempts_;
};

}  // namespace cohort::net
