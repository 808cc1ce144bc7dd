// Sends that hand the caller's pages themselves to the kernel (vmsplice into a pipe, splice into the socket), for large blocks to peers on
// this host: the receiver then copies straight out of the sender's memory, one copy instead of two. Measured over loopback, exchange of 16
// MiB, GB/s each way, copying against lending: 1.3 and 3.8 (huge pages, cores far apart), 2.5 and 5.2 (near), 1.4 and 1.6 (small pages).
// The kernel cannot tell when the receiver has read the pages, so the receiver says so itself, and only then is the message stamped good:
// see Outflow. A socket that lends is corked until the bytes end: on loopback a packet holds 53 bytes less than 16 pages, and without a
// cork every acknowledgement sent the rest of them on a packet of their own, a fifth of all packets. Owner: Outflow, under its mutex.
// Threads: one at a time. Failure: where the kernel refuses, bytes are copied as ever.
#pragma once
#include "cohort/base/fd.h"
#include "cohort/net/socket.h"

namespace cohort::net {

class Lender {
 public:
  static constexpr std::size_t kLeast = 128_KiB;  // below, waiting for the receiver's word costs more than the copy
  void enable(int fd, bool cork) { fd_ = fd, on_ = true, cork_ = cork; }
  bool pays_for(std::size_t bytes) const { return on_ && bytes >= kLeast; }
  // As write_some; what a call did not get through must be the beginning of the next call's bytes, until reset().
  // more: bytes follow at once.
  IoResult write(ConstBytes bytes, bool more);
  void reset();  // takes back what has not reached the socket; what has leaves at once

 private:
  bool fill(ConstBytes bytes);
  void give_up();  // from here on bytes are copied
  void cork(bool in);

  int fd_ = -1;
  bool on_ = false, cork_ = false;  // cork_: it pays here
  bool corked_ = false;
  Fd in_, out_;             // the pipe, made when it is first needed
  std::size_t inside_ = 0;  // bytes in the pipe
};

}  // namespace cohort::net
