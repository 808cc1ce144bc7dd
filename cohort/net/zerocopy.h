// Sends that the network card reads straight from the caller's memory (MSG_ZEROCOPY), for large blocks on links that leave the host.
// The kernel tells later, on the socket's error queue, when it has let go of the memory; until then a send is in flight and not done. Where
// the kernel says that it copied after all (loopback, veth, cards without scatter-gather) the pinning was for nothing: off for this link.
// Owner: Outflow, under its mutex. Threads: one at a time. Failure: none; without it bytes are copied as ever.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>

#include "cohort/net/hub.h"

namespace cohort::net {

class ZeroCopy {
 public:
  static constexpr std::size_t kLeast = 64_KiB;  // below, pinning pages costs more than copying them
  void enable(int fd);                           // stays off when the kernel does not know it
  bool on() const { return on_; }
  bool pays_for(std::size_t bytes) const { return on_ && bytes >= kLeast; }
  void sent(const std::shared_ptr<Sending>& sending);   // one successful sendmsg with MSG_ZEROCOPY for it
  bool whole(const std::shared_ptr<Sending>& sending);  // all its bytes left the queue; true: and none is in flight, it is done
  bool flying() const { return !flights_.empty(); }
  bool reap(int fd);                                                     // reads the error queue; true when a Sending is done
  void completed(std::uint32_t first, std::uint32_t last, bool copied);  // what reap() finds: these sendmsg have let go
  std::uint64_t copies() const { return copies_; }

 private:
  struct Flight {
    std::shared_ptr<Sending> sending;  // shared with its waiter
    std::uint32_t first = 0, count = 0, landed = 0;
    bool whole = false;
  };
  bool settle();

  bool on_ = false;
  std::uint32_t next_ = 0;  // number of the next zero-copy sendmsg of this socket, as the kernel counts
  std::deque<Flight> flights_;
  std::uint64_t copies_ = 0;
};

}  // namespace cohort::net
