// What tests of this module share: a generous deadline, the error of a piece of work, plain sockets of peers that do not authenticate.
#pragma once
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/net/socket/listener.h"

namespace cohort::net {

inline Deadline soon() { return Deadline::in(60s); }  // generous: sanitizers on a busy machine

// The error that `work` ends with; a bug named "no failure" when it does not fail.
template <class Work>
Error failure_of(const Work& work) {
  try {
    work();
  } catch (const Failure& failure) {
    return failure.error();
  }
  return {Kind::bug, "no failure", kNoRank};
}

inline Fd raw_connection(const Address& to) {
  const SocketAddress where = SocketAddress::of(to);
  Fd fd{::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(fd.get(), where.get(), where.length) != 0) throw_system("connect");
  return fd;
}

inline std::vector<Fd> raw_connections(const Address& to, std::size_t count) {
  std::vector<Fd> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(raw_connection(to));
  return all;
}

inline bool is_open(const Fd& fd) {
  char byte = 0;
  const ssize_t n = ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n > 0 || (n < 0 && errno == EAGAIN);
}

inline void send_raw(const Fd& to, ConstBytes bytes) {
  ASSERT_EQ(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

}  // namespace cohort::net
