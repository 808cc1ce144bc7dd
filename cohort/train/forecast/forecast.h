// The facts a plan is made of, for a run's settings: its model walked, its sweeps and its data timed, its buckets planned.
//   plan::Facts facts = forecast::find_facts(config, asked);       // then plan::choices(facts), plan::plan_text(..)
// Kernels, sweeps and batches are timed with the threads the run's ranks will have; start as many ranks as will share the machine, or the
// times are those of a machine that is idle otherwise. Nothing of the model is run. Owner: values. Threads: one. Failure: as the zoo's;
// data that is not there is a note, not a failure.
#pragma once
#include <optional>

#include "cohort/plan/choices.h"
#include "cohort/train/config.h"
#include "cohort/train/forecast/kernels.h"

namespace cohort::forecast {

struct Asked {
  int ranks = 1;
  int cores = 1;                   // of this machine
  int threads = 1;                 // a rank computes with
  double memory = 0;               // bytes a rank has; 0: not said
  std::optional<plan::Wire> wire;  // none: this machine's shared memory
  std::optional<Device> device;    // none: kernels are timed here
  collective::Calibration constants;
  bool all_ways = true;  // of recomputing; else that of the settings only
};

plan::Facts find_facts(const TrainConfig& config, const Asked& asked);

}  // namespace cohort::forecast
