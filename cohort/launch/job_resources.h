// What a launcher or an agent keeps for as long as its job runs: the secret and the coordinator's log, in memory (no disk that may be full,
// nothing left behind), and a port that is the ranks' to use as MASTER_PORT. Threads: one. Failure: Kind::system.
#pragma once
#include <string>

#include "cohort/base/fd.h"
#include "cohort/net/crypto/secret.h"

namespace cohort::launch {

// An empty file without a name, on no disk; it is gone with the last process that has it open.
Fd memory_file(const char* label);

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
