// Measures what `cohort plan` predicts while a run trains: memory by class and the time of a step.
// Parameters, gradients, state and buckets are counted by the ledger; activations and temporaries are what torch has allocated since the
// step began: activations when forward has ended, temporaries what came on top of them at the peak.
// Owner: Trainer. Threads: the one that trains. Failure: none.
#pragma once
#include <cstddef>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/nn/allocation_meter.h"
#include "cohort/plan/report.h"

namespace cohort::train {

class StepProfiler {
 public:
  void begin_step();
  void end_forward();
  void end_step();

  std::size_t steps() const { return seconds_.size(); }
  plan::MeasuredStep measured_step() const;

 private:
  nn::AllocationMeter meter_;
  std::size_t base_ = 0, kept_ = 0, peak_ = 0;
  Clock::time_point start_;
  std::vector<double> seconds_;
};

}  // namespace cohort::train
