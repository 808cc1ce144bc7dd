// Signals as something to read: blocked for the process and taken from a descriptor, so that no handler interrupts anything.
// Signals that whoever started us had ignored (nohup, a shell's background job) stay ignored.
#pragma once
#include <csignal>
#include <vector>

#include "cohort/base/fd.h"

namespace cohort::launch {

class Signals {
 public:
  Signals();  // blocks SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT; ignores SIGPIPE, SIGTTIN, SIGTTOU
  int fd() const { return fd_.get(); }
  std::vector<int> take();                                 // what has arrived, in order of number; SIGCHLD once however many children ended
  const sigset_t& mask_before() const { return before_; }  // what children should have again

 private:
  sigset_t before_{};
  Fd fd_;
};

}  // namespace cohort::launch
