// max_pool2d(relu(x), 2) as one pass over memory, forward and backward, with torch's values.
// torch takes five: the ReLU, a pool that looks at one number at a time and keeps eight bytes of index for each it finds, and the same way
// back through zeros. In the small convolutional network that is a quarter of a step. Here what is kept is a byte: which of the four it
// was. Ties go to the first, NaN wins, a sum that is not above zero hands no gradient on: as there. Images that are not float32, contiguous
// and on the CPU are left to torch. Threads: as torch's operators, and as many. Failure: torch's own, for shapes that do not fit. To the
// dispatcher these are cohort::relu_pool and cohort::relu_pool_backward, so profilers and dispatch modes see them.
#pragma once
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

namespace cohort::nn {

at::Tensor relu_pool(const at::Tensor& x);

class ReluPoolImpl : public torch::nn::Cloneable<ReluPoolImpl> {
 public:
  void reset() override {}
  at::Tensor forward(const at::Tensor& x) { return relu_pool(x); }  // NOLINT(readability-convert-member-functions-to-static)
};
TORCH_MODULE(ReluPool);

// For tests: without wide instructions, which are otherwise used where there are any.
class ScalarPoolsGuard {
 public:
  ScalarPoolsGuard();
  ~ScalarPoolsGuard();
  ScalarPoolsGuard(const ScalarPoolsGuard&) = delete;
  ScalarPoolsGuard& operator=(const ScalarPoolsGuard&) = delete;
};

}  // namespace cohort::nn
