// Starting one rank: a process of its own group that dies with its launcher, whatever kills that.
// Threads: the launcher's main thread only (the kernel ties PR_SET_PDEATHSIG to the thread that forked). Failure: Kind::system; a program
// that cannot be executed is NoProgram.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "cohort/base/fd.h"
#include "cohort/launch/program.h"

namespace cohort::launch {

struct ChildPlan {
  const Program* program = nullptr;
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> cpus;                 // where it may run; empty: where we may
  int input = -1;                        // becomes its standard input; -1: /dev/null
  sigset_t signal_mask{};                // the mask the launcher itself was started with
  int parent_death_signal =
      SIGKILL;  // what it gets when the launcher dies; after a gentler one the foreground process or the agent ends what is left
};

struct Child {
  pid_t pid = -1;
  Fd out, err;  // what it writes, non-blocking
};

Child start_child(const ChildPlan& plan);

}  // namespace cohort::launch
