// Runs a model on fake tensors (fake_tensor.h): forward, loss and backward of one micro-batch, every kernel measured once, nothing
// computed. Owner: values. Threads: one at a time. Failure: Kind::usage for a model that reads values; as the zoo's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/base/precision.h"
#include "cohort/nn/blocks.h"
#include "cohort/plan/forecast/kernels.h"
#include "cohort/plan/model_profile.h"

namespace cohort::plan::forecast {

// What the model is given.
struct MicroBatch {
  std::vector<std::int64_t> sample;  // shape of one input
  bool tokens = false;               // inputs are token ids
  bool next_tokens = false;          // labels are one for each token, else one for each sample
  std::int64_t batch = 1;
  std::int64_t targets = 0;  // float targets of each sample; 0: labels as above
  std::string loss = "auto";
  double label_smoothing = 0;
  Precision precision = Precision::fp32;  // of forward and backward, where that is safe (nn/autocast.h)
};

nn::Input input_of(const std::string& model_spec, KernelTimings& kernels);  // what the model says it reads
// recompute: as the setting of that name (recompute_choice.h); a block that is recomputed keeps its input only and is computed again when
// backward comes to it. until_fits does it twice, the first time to find out what blocks keep.
plan::ModelProfile profile_model(const std::string& model_spec, const MicroBatch& micro_batch, const std::string& recompute,
                                 KernelTimings& kernels);

}  // namespace cohort::plan::forecast
