// Mean absolute error: loss = sum |output - target|. Far outliers pull on it no harder than near ones.
#include <ATen/core/Reduction.h>
#include <ATen/ops/l1_loss.h>

#include "cohort/nn/loss.h"

namespace cohort::nn {
namespace {

Loss mae_sum(const at::Tensor& outputs, const at::Tensor& targets, const SpecValues&, const LossOptions&) {
  check_targets(outputs, targets);
  return {at::l1_loss(outputs, targets, at::Reduction::Sum), targets.numel()};
}

}  // namespace

extern const LossKind row_mae{.name = "mae",
                              .about = "mean absolute error, for float targets",
                              .params = [] { return std::vector<SpecParam>{}; },
                              .regression = true,
                              .measure = "mae",
                              .sum = mae_sum};

}  // namespace cohort::nn
