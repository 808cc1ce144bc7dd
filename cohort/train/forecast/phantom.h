// Phantoms are tensors that have a shape, a type and a place in autograd's graph, but no memory. A model walked with them dispatches as on
// the CPU, saves for backward what it would save, and frees it when it would: what lives at any moment is exact, and nothing is computed.
//   Kernels kernels({...});
//   const Haunted here(kernels);                    // on this thread, until it goes
//   nn::Model model = nn::build_model(spec);        // parameters are phantoms, of any size
//   loss(model.forward(phantom(..))).backward();    // every kernel that would run is shown to `kernels`
// How: torch keeps a dispatch key, Fake, between autograd and the kernels for tensors that pretend. Views and shape changes run as they
// are; everything else is answered by Kernels::call, which says what shapes come out. Owner: the caller. Threads: one at a time each;
// backward of CPU tensors runs on the caller's. Failure: Kind::usage when a model reads values while it is built or run (item(),
// data_ptr()).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

#include "cohort/train/forecast/kernels.h"

namespace cohort::forecast {

// Bytes of phantoms that live, and the highest of that.
struct Living {
  std::size_t now = 0, peak = 0;
};

class Haunted {
 public:
  explicit Haunted(Kernels& kernels);
  ~Haunted();
  Haunted(const Haunted&) = delete;
  Haunted& operator=(const Haunted&) = delete;

  Living living() const;
  void restart();  // forgets what lives now: parameters and inputs, which others account for

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

at::Tensor phantom(at::IntArrayRef sizes, at::ScalarType type);
bool is_phantom(const at::Tensor& tensor);

}  // namespace cohort::forecast
