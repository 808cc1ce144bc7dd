// A linear layer whose weight gradient goes straight to where it belongs.
//   y = x W^T + b;    backward: W.grad += dy^T x as one matrix product into W.grad's own memory
// torch computes dy^T x into fresh memory and adds that to W.grad: for layers with small batches those passes over memory cost as much as a
// tenth of the step. Here, when W.grad exists at forward (the engine's buckets: a view of memory that all ranks reduce in place), the
// product accumulates into it; W.grad is then handed to autograd as the gradient, which keeps it without a copy, so hooks fire as always.
// Everything else is torch's: no bias, W.grad undefined, graphs of gradients, autograd::grad() with inputs, hooks on W that see the
// gradient, other devices. Products themselves: product.h. A layer used twice in one graph accumulates in place once and by torch the
// second time; the sum is right. Threads: as torch modules. Failure: torch's own, for shapes that do not fit.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch::nn {
class LinearImpl;
}

namespace cohort::nn {

at::Tensor linear(torch::nn::LinearImpl& layer, const at::Tensor& x);

// A backward() of everything is running, which ends in W.grad; not an autograd::grad() of something.
bool plain_backward();
// Inside a node of a plain backward: what a grad() within computes goes on to W.grad, so while this lives the product may be put there.
class InPlaceGradients {
 public:
  explicit InPlaceGradients(bool allow);
  ~InPlaceGradients();
  InPlaceGradients(const InPlaceGradients&) = delete;
  InPlaceGradients& operator=(const InPlaceGradients&) = delete;

 private:
  const bool before_;
};

}  // namespace cohort::nn
