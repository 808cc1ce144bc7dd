#include "cohort/net/tcp/msg_zerocopy.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

namespace cohort::net {

void MsgZeroCopy::enable(int fd) {
  const int yes = 1;
  on_ = setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes) == 0;
}

void MsgZeroCopy::sent(const std::shared_ptr<Sending>& sending) {
  if (in_flight_.empty() || in_flight_.back().sending != sending) in_flight_.push_back({sending, next_, 0, 0, false});
  ++in_flight_.back().count;
  ++sending->in_card;
  ++next_;
}

bool MsgZeroCopy::whole(const std::shared_ptr<Sending>& sending) {
  if (in_flight_.empty() || in_flight_.back().sending != sending) return true;
  in_flight_.back().whole = true;
  settle();
  return sending->done();
}

// Numbers wrap at 2^32; fewer than 2^31 are ever in flight.
void MsgZeroCopy::completed(std::uint32_t first, std::uint32_t last, bool copied) {
  if (copied) {
    on_ = false;
    ++copies_;
  }
  for (std::uint32_t number = first;; ++number) {
    for (InFlight& one : in_flight_)
      if (number - one.first < one.count) {
        ++one.completed;
        --one.sending->in_card;
      }
    if (number == last) return;
  }
}

bool MsgZeroCopy::settle() {
  bool done = false;
  std::erase_if(in_flight_, [&](const InFlight& one) {
    if (!one.whole || one.completed < one.count) return false;
    one.sending->set_done();
    return done = true;
  });
  return done;
}

bool MsgZeroCopy::reap(int fd) {
  while (true) {
    alignas(cmsghdr) char control[128];
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return settle();
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const bool ours =
          (c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) || (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR);
      if (!ours) continue;
      sock_extended_err error{};
      std::memcpy(&error, CMSG_DATA(c), sizeof error);
      if (error.ee_origin == SO_EE_ORIGIN_ZEROCOPY)
        completed(error.ee_info, error.ee_data, (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0);
    }
  }
}

}  // namespace cohort::net
