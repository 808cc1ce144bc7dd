// RngAutocastState is what a function's results depend on beside its inputs: the state of random numbers, and autocast.
//   const RngAutocastState then(inputs);     // as they are now
//   { const RngAutocastGuard back(then); f(inputs); }   // the same again; afterwards the state is as it was before
// Autocast's copies of weights belong to the graph they were made in: they are dropped before and after.
// Owner: values. Threads: the state is of the thread that calls, and the generators are the process's.
#pragma once
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace cohort::nn {

class RngAutocastState {
 public:
  explicit RngAutocastState(const std::vector<at::Tensor>& inputs);  // of the CPU and of every device an input is on

 private:
  friend class RngAutocastGuard;
  struct Device {
    c10::Device device;
    at::Tensor rng;  // the generator's state
    bool autocast;
    at::ScalarType dtype;
  };
  explicit RngAutocastState(const std::vector<Device>& devices);
  static Device read(c10::Device device);
  void apply() const;

  std::vector<Device> devices_;
  bool cache_;
};

// Restores the state of another time, while it lives.
class RngAutocastGuard {
 public:
  explicit RngAutocastGuard(const RngAutocastState& to);
  ~RngAutocastGuard();
  RngAutocastGuard(const RngAutocastGuard&) = delete;
  RngAutocastGuard& operator=(const RngAutocastGuard&) = delete;

 private:
  const RngAutocastState now_;
};

// While it lives autocast copies weights anew, and nothing that it copies outlives it.
class AutocastCacheGuard {
 public:
  AutocastCacheGuard();
  ~AutocastCacheGuard();
  AutocastCacheGuard(const AutocastCacheGuard&) = delete;
  AutocastCacheGuard& operator=(const AutocastCacheGuard&) = delete;
};

}  // namespace cohort::nn
