// How long a thread was ready to run and had no core, so far, as the kernel counts it (/proc/thread-self/schedstat); 0 where it does not.
// A process that is stopped (SIGSTOP) waits for no core. A reading costs a few microseconds.
// Owner and thread: the one that made it, whose time it is. Failure: none.
#pragma once
#include "cohort/base/fd.h"

namespace cohort {

class CoreWait {
 public:
  CoreWait();
  double seconds() const;

 private:
  Fd file_;
};

}  // namespace cohort
