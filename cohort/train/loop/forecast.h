// The input of a plan, for a run's settings: its model profiled, its passes and its data timed, its buckets planned.
//   plan::PlanInput input = train::gather_plan_input(config, options);       // then plan::choices(input), plan::plan_text(..)
// Kernels, passes and batches are timed with the threads the run's ranks will have; start as many ranks as will share the machine, or the
// times are those of a machine that is idle otherwise. Nothing of the model is run. Owner: values. Threads: one. Failure: as the zoo's;
// data that is not there is a note, not a failure.
#pragma once
#include <optional>

#include "cohort/plan/choices.h"
#include "cohort/plan/forecast/kernels.h"
#include "cohort/train/config.h"

namespace cohort::train {

struct ForecastOptions {
  int ranks = 1;
  int cores = 1;                                 // of this machine
  int threads = 1;                               // a rank computes with
  double memory = 0;                             // bytes a rank has; 0: not said
  std::optional<plan::LinkSpeed> link_speed;     // none: this machine's shared memory
  std::optional<plan::forecast::Device> device;  // none: kernels are timed here
  collective::Calibration constants;
  bool all_ways = true;  // of recomputation; else that of the settings only
};

plan::PlanInput gather_plan_input(const TrainConfig& config, const ForecastOptions& options);

}  // namespace cohort::train
