// Walks over a model with phantoms (phantom.h): forward, loss and backward of one micro-batch, every kernel looked at once, nothing run.
// Owner: values. Threads: one at a time. Failure: Kind::usage for a model that reads values; as the zoo's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/nn/blocks.h"
#include "cohort/plan/walk.h"
#include "cohort/train/forecast/kernels.h"

namespace cohort::forecast {

// What the model is given.
struct Micro {
  std::vector<std::int64_t> sample;  // shape of one input
  bool tokens = false;               // inputs are token ids
  bool next_tokens = false;          // labels are one for each token, else one for each sample
  std::int64_t batch = 1;
  double label_smoothing = 0;
};

nn::Input input_of(const std::string& model_spec, Kernels& kernels);  // what the model says it reads
// every: 0 keeps everything for backward; k: every k-th block keeps its input only and is computed again when backward comes to it.
plan::Walk walk(const std::string& model_spec, const Micro& micro, int every, Kernels& kernels);

}  // namespace cohort::forecast
