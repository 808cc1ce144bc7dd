// Cross entropy of classes and of next tokens:
//   loss = sum_i -log softmax(logits_i)[label_i]
//   with label smoothing s over K classes: the target is (1 - s) on the label plus s / K on every class.
#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {
namespace {

void check_logits(const at::Tensor& logits, const at::Tensor& labels) {
  const bool fits = logits.dim() == labels.dim() + 1 && logits.sizes().slice(0, static_cast<std::size_t>(labels.dim())) == labels.sizes();
  if (!fits) {
    throw_failure(Kind::usage,
                  "logits [{}] and labels [{}] do not fit; logits have one more dimension than labels, the classes, and it is the last",
                  fmt::join(logits.sizes(), ", "), fmt::join(labels.sizes(), ", "));
  }
}

// A loop over memory where it can be one: three operators of torch cost as much as a small layer.
std::int64_t counted(const at::Tensor& labels) {
  if (!labels.device().is_cpu() || !labels.is_contiguous() || labels.scalar_type() != at::kLong)
    return labels.ne(kIgnoredLabel).sum().item<std::int64_t>();
  const std::int64_t* const first = labels.const_data_ptr<std::int64_t>();
  return labels.numel() - std::count(first, first + labels.numel(), kIgnoredLabel);
}

Loss cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels, const SpecValues&, const LossOptions& options) {
  check_logits(logits, labels);
  const std::int64_t count = counted(labels);
  return {at::cross_entropy_loss(logits.reshape({labels.numel(), logits.size(-1)}), labels.reshape({-1}), {}, at::Reduction::Sum,
                                 kIgnoredLabel, options.label_smoothing),
          count};
}

}  // namespace

std::int64_t correct(const at::Tensor& logits, const at::Tensor& labels) {
  check_logits(logits, labels);
  if (labels.numel() == 0) return 0;
  return logits.argmax(-1).eq(labels).sum().item<std::int64_t>();
}

extern const LossKind row_cross_entropy{.name = "cross_entropy",
                                        .about = "negative log-likelihood of classes and next tokens",
                                        .params = [] { return std::vector<SpecParam>{}; },
                                        .regression = false,
                                        .measure = "accuracy",
                                        .sum = cross_entropy_sum};

}  // namespace cohort::nn
