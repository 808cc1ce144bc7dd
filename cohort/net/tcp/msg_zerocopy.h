// Sends that the network card reads straight from the caller's memory (MSG_ZEROCOPY), for large blocks on links that leave the host.
// The kernel reports on the socket's error queue when it has released the memory; until then a send is in flight and not done. Where the
// kernel reports that it copied after all (loopback, veth, cards without scatter-gather) the pinning was for nothing: off for this link.
// Owner: SendStream, under its mutex. Threads: one at a time. Failure: none; without it bytes are copied.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>

#include "cohort/net/transport/transport_base.h"

namespace cohort::net {

class MsgZeroCopy {
 public:
  static constexpr std::size_t kMinBytes = 64_KiB;  // below, pinning pages costs more than copying them
  void enable(int fd);                              // stays off when the kernel does not support it
  bool on() const { return on_; }
  bool pays_for(std::size_t bytes) const { return on_ && bytes >= kMinBytes; }
  void sent(const std::shared_ptr<Sending>& sending);   // one successful sendmsg with MSG_ZEROCOPY for it
  bool whole(const std::shared_ptr<Sending>& sending);  // all its bytes were given to sendmsg; true: and none is in flight, it is done
  bool in_flight() const { return !in_flight_.empty(); }
  bool reap(int fd);                                                     // reads the error queue; true when a Sending is done
  void completed(std::uint32_t first, std::uint32_t last, bool copied);  // what reap() finds: the kernel is done with these sendmsg
  std::uint64_t copies() const { return copies_; }

 private:
  struct InFlight {
    std::shared_ptr<Sending> sending;  // shared with its waiter
    std::uint32_t first = 0, count = 0, completed = 0;
    bool whole = false;
  };
  bool settle();

  bool on_ = false;
  std::uint32_t next_ = 0;  // number of the next zero-copy sendmsg of this socket, as the kernel counts
  std::deque<InFlight> in_flight_;
  std::uint64_t copies_ = 0;
};

}  // namespace cohort::net
