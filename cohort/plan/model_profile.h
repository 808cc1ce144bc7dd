// The profile of a model, made without running it: times of its kernels, what lives when, which gradient arrives when. Plain numbers:
// plan/forecast/ makes them with torch, this module turns them into memory and step time. Threads: values.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace cohort::plan {

struct ParameterProfile {
  std::string name;
  std::size_t elements = 0, bytes = 0;
  std::size_t block = 0;  // the first that reads it
  double arrives = 0;     // seconds into backward: its gradient is complete
};

struct BlockProfile {
  std::string name;
  double forward = 0;     // seconds
  std::size_t bytes = 0;  // of the parameters it reads first
  std::size_t kept = 0;   // what its forward leaves alive, its output included
  std::size_t output = 0;
};

// One micro-batch of one rank that has a core (or its share of threads) for itself.
struct ModelProfile {
  std::string recompute = "none";
  std::vector<ParameterProfile> parameters;  // in the model's order
  std::vector<BlockProfile> blocks;
  double forward = 0, backward = 0;  // seconds
  std::size_t kept = 0;              // bytes that live when forward has ended: what backward needs, and the loss
  std::size_t peak = 0;              // the most that lives at any moment, with the scratch of kernels
  double flops = 0;                  // of matrix products and convolutions, recomputed ones too
  std::size_t kernels = 0;           // distinct ones
};

}  // namespace cohort::plan
