// Huber loss (1964): e^2 / 2 for errors |e| <= delta, delta (|e| - delta / 2) for larger ones: smooth near 0, outliers count linearly.
#include <ATen/core/Reduction.h>
#include <ATen/ops/huber_loss.h>

#include "cohort/nn/loss.h"

namespace cohort::nn {
namespace {

std::vector<SpecParam> huber_params() {
  return {{.name = "delta",
           .type = SpecParam::Type::real,
           .doc = "error from which on it grows linearly",
           .preset = "1",
           .low = 1e-6,
           .high = 1e9}};
}

Loss huber_sum(const at::Tensor& outputs, const at::Tensor& targets, const SpecValues& values, const LossOptions&) {
  check_targets(outputs, targets);
  return {at::huber_loss(outputs, targets, at::Reduction::Sum, values.real("delta")), targets.numel()};
}

}  // namespace

extern const LossKind row_huber{.name = "huber",
                                .about = "squared for small errors, absolute for large ones, for float targets",
                                .params = huber_params,
                                .regression = true,
                                .measure = "rmse",
                                .sum = huber_sum};

}  // namespace cohort::nn
