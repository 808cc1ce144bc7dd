#include "cohort/nn/ghost_batch_norm.h"

#include "cohort/base/error.h"

namespace cohort::nn {

GhostBatchNormImpl::GhostBatchNormImpl(std::int64_t features, std::int64_t size)
    : weight(register_parameter("weight", torch::ones({features}))),
      bias(register_parameter("bias", torch::zeros({features}))),
      running_mean(register_buffer("running_mean", torch::zeros({features}))),
      running_var(register_buffer("running_var", torch::ones({features}))),
      size_(size) {}

at::Tensor GhostBatchNormImpl::forward(const at::Tensor& x) {
  constexpr double kMomentum = 0.1, kEps = 1e-5;  // torch's
  const auto normalised = [&](const at::Tensor& part) {
    if (is_training() && part.numel() == part.size(1))
      throw_failure(Kind::usage,
                    "norm=ghost(size={}): the last ghost of this batch has one value a channel, which has no variance; take a "
                    "data.batch that is a multiple of it",
                    size_);
    return at::batch_norm(part, weight, bias, running_mean, running_var, is_training(), kMomentum, kEps, false);
  };
  if (!is_training() || x.size(0) <= size_) return normalised(x);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& ghost : x.split(size_)) parts.push_back(normalised(ghost));
  return at::cat(parts);
}

}  // namespace cohort::nn
