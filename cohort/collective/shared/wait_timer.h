// How long this thread has waited for other ranks, over all its collectives so far: what a step loses to ranks that come late or have no
// core, and not to moving bytes. The first microseconds of a wait, before a rank gives its core away, are not counted: looking at the clock
// would cost as much. Threads: each has its own count.
#pragma once
#include "cohort/base/deadline.h"

namespace cohort::collective {

Seconds wait_time();

// Counts from here to the end of the scope.
class WaitTimer {
 public:
  WaitTimer() : start_(Clock::now()) {}
  ~WaitTimer();
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  Clock::time_point start_;
};

}  // namespace cohort::collective
