// What tests of the handshake share.
#pragma once
#include <sys/socket.h>

#include <array>

#include "cohort/net/auth/handshake.h"
#include "cohort/net/socket/testing.h"

namespace cohort::net {

inline Hello test_hello(int rank) { return {"test", Epoch{1}, Rank{rank}, Role::worker}; }

// Whether the listener's opening has come; does not wait.
inline bool received_opening(const Fd& fd) {
  std::array<std::byte, Handshake::kOpening> opening;
  return ::recv(fd.get(), opening.data(), opening.size(), MSG_DONTWAIT) == 40;
}

}  // namespace cohort::net
