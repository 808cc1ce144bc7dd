// A short search for bucket size and lanes, before the first step: every candidate carries the real model's gradients for a few steps with
// a learning rate of 0, which changes no parameter; the slowest rank's time counts, and all ranks keep the same choice. What is chosen
// changes no bit of the result, only the time it takes. Owner: none. Threads: one. Failure: as the engine's.
#pragma once
#include <string>
#include <vector>

#include "cohort/engine/engine.h"
#include "cohort/nn/blocks.h"

namespace cohort::train {

struct Trial {
  engine::EngineOptions options;
  double seconds = 0;  // of a step: the median, on the slowest rank
};

struct TuneResult {
  engine::EngineOptions best;
  std::vector<Trial> trials;
  std::string why;  // "chose buckets of 4 MiB, engine.lanes=1: 3.1 ms a step; tried .."
};

struct TuneSetting {
  std::vector<engine::Parameter> parameters;
  engine::EngineOptions options;
  std::string rule;
  std::int64_t batch = 1;
  int cores = 1, ranks_here = 1;
  Precision precision = Precision::fp32;
};

TuneResult tune(collective::Communicator& comm, nn::Model& model, const TuneSetting& setting);

}  // namespace cohort::train
