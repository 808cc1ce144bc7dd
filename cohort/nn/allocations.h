// Counts the bytes that torch allocates and frees on the CPU while it lives: how much a forward keeps, how high a step reaches.
//   AllocationMeter meter;  model.forward(x);  meter.now(), meter.peak()
// Memory from before that is freed meanwhile is not known and not counted (torch mentions it once in the log): keep it alive.
// Owner: the caller; they nest, the inner one counts. Threads: the one that made it, with its backwards; kernels' own threads allocate
// nothing.
#pragma once
#include <cstddef>
#include <memory>

#include "cohort/nn/blocks.h"

namespace cohort::nn {

class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  std::size_t now() const;
  std::size_t peak() const;

 private:
  struct Reporter;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What one forward of x keeps for a backward, by block: everything with the block's output, and that output alone. Runs the model once in
// its present mode, without the seam; buffers and random numbers are as before.
struct KeptBytes {
  std::size_t kept = 0, output = 0;
};
std::vector<KeptBytes> measure_activations(const Model& model, const at::Tensor& x);

}  // namespace cohort::nn
