// Two things a launcher or an agent keeps for the ranks of its host for as long as they run: the secret, in a memfd (nothing on disk, gone
// with us), and a port that is theirs to use as MASTER_PORT. Threads: one. Failure: Kind::system.
#pragma once
#include <string>

#include "cohort/base/fd.h"
#include "cohort/net/crypto/secret.h"

namespace cohort::launch {

class SecretFile {
 public:
  explicit SecretFile(const net::Secret& secret);
  std::string path() const;  // /proc/<us>/fd/<n>: for processes of this user on this host

 private:
  Fd fd_;
};

class ReservedPort {
 public:
  ReservedPort() = default;
  ReservedPort(const std::string& address, int wanted);  // 0: a free one; another is the user's choice and the user's business
  int number() const { return number_; }

 private:
  Fd socket_;  // bound, never listening: the system gives the port to nobody else, and the program may still listen on it
  int number_ = 0;
};

}  // namespace cohort::launch
