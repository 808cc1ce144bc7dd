// Fake tensors are tensors that have a shape, a type and a place in autograd's graph, but no memory. A model that runs on them dispatches
// as on the CPU, saves for backward what it would save, and frees it when it would: what lives at any moment is exact, and nothing is
// computed.
//   KernelTimings kernels({...});
//   const FakeTensorMode here(kernels);                    // on this thread, until it is destroyed
//   nn::Model model = nn::build_model(spec);        // parameters are fake tensors, of any size
//   loss(model.forward(fake_tensor(..))).backward();    // every kernel that would run is recorded by `kernels`
// How: torch keeps a dispatch key, Fake, between autograd and the kernels for such tensors. Views and shape changes run as they
// are; everything else is answered by KernelTimings::call, which says what shapes come out. Owner: the caller. Threads: one at a time each;
// backward of CPU tensors runs on the caller's. Failure: Kind::usage when a model reads values while it is built or run (item(),
// data_ptr()).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

#include "cohort/plan/forecast/kernels.h"

namespace cohort::plan::forecast {

// Bytes of fake tensors that live, and the highest of that.
struct LiveBytes {
  std::size_t now = 0, peak = 0;
};

class FakeTensorMode {
 public:
  explicit FakeTensorMode(KernelTimings& kernels);
  ~FakeTensorMode();
  FakeTensorMode(const FakeTensorMode&) = delete;
  FakeTensorMode& operator=(const FakeTensorMode&) = delete;

  LiveBytes live_bytes() const;
  void restart();  // forgets what lives now: parameters and inputs, which others account for

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

at::Tensor fake_tensor(at::IntArrayRef sizes, at::ScalarType type);
bool is_fake(const at::Tensor& tensor);

}  // namespace cohort::plan::forecast
