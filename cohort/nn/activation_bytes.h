// How much a forward keeps for its backward, block by block. Threads: the one that calls. Failure: as the model's.
#pragma once
#include <cstddef>
#include <vector>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

// What one forward of x keeps for a backward, by block: everything with the block's output, and that output alone. Runs the model once in
// its present mode, without the wrapper; buffers and random numbers are as before.
struct ActivationBytes {
  std::size_t kept = 0, output = 0;
};
std::vector<ActivationBytes> measure_activations(const Model& model, const at::Tensor& x);

}  // namespace cohort::nn
