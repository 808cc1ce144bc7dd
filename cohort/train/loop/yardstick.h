// Measures what `cohort plan` predicts while a run trains: memory by class and the time of a step.
// Parameters, gradients, state and buckets are on the ledger's books; activations and temporaries are what torch holds on top of what it
// held when the step began: activations when forward has ended, temporaries what came on top at the worst moment.
// Owner: Trainer. Threads: the one that trains. Failure: none.
#pragma once
#include <cstddef>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/nn/meter.h"
#include "cohort/plan/report.h"

namespace cohort {

class Yardstick {
 public:
  void step_begins();
  void forward_ended();
  void step_ends();

  std::size_t steps() const { return seconds_.size(); }
  plan::Happened happened() const;

 private:
  nn::Meter meter_;
  std::size_t base_ = 0, kept_ = 0, peak_ = 0;
  Clock::time_point start_;
  std::vector<double> seconds_;
};

}  // namespace cohort
