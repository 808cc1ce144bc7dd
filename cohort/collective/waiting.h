// How long this thread has waited for other ranks, over all its verbs so far: what a step loses to ranks that come late or have no core,
// and not to moving bytes. The first microseconds of a wait, before a rank gives its core away, are not counted: looking at the clock would
// cost as much. Threads: each has its own count.
#pragma once
#include "cohort/base/deadline.h"

namespace cohort::collective {

Seconds waited();

// Counts from here to the end of the scope.
class Waiting {
 public:
  Waiting() : start_(Clock::now()) {}
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Clock::time_point start_;
};

}  // namespace cohort::collective
