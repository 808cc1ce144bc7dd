// Ghost batch normalisation (Hoffer et al. 2017): statistics of `size` samples at a time, whatever the batch, so that a large batch is
// normalised as small ones are. Training: samples 0 .. size - 1, then the next, the last ghost may be smaller; running statistics move
// once for each. Evaluation: as batch norm, by the running statistics.
// Law: outputs and gradients are those of ordinary batch norm on the ghosts one after another.
// Owner: the model. Threads: one. Failure: torch's, for a ghost of one number a channel.
#pragma once
#include <torch/torch.h>

namespace cohort::nn {

class GhostBatchNormImpl : public torch::nn::Module {
 public:
  GhostBatchNormImpl(std::int64_t features, std::int64_t size);
  at::Tensor forward(const at::Tensor& x);  // [n, features, ...]

  torch::Tensor weight, bias, running_mean, running_var;

 private:
  const std::int64_t size_;
};
TORCH_MODULE(GhostBatchNorm);

}  // namespace cohort::nn
