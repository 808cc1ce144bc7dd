// Mean squared error: loss = sum (output - target)^2.
#include <ATen/core/Reduction.h>
#include <ATen/ops/mse_loss.h>

#include "cohort/nn/loss.h"

namespace cohort::nn {
namespace {

Loss mse_sum(const at::Tensor& outputs, const at::Tensor& targets, const SpecValues&, const LossOptions&) {
  check_targets(outputs, targets);
  return {at::mse_loss(outputs, targets, at::Reduction::Sum), targets.numel()};
}

}  // namespace

extern const LossKind row_mse{.name = "mse",
                              .about = "mean squared error, for float targets",
                              .params = [] { return std::vector<SpecParam>{}; },
                              .regression = true,
                              .measure = "rmse",
                              .sum = mse_sum};

}  // namespace cohort::nn
