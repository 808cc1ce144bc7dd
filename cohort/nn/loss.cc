#include "cohort/nn/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort::nn {
namespace {

void check(const at::Tensor& logits, const at::Tensor& labels) {
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

}  // namespace

Loss loss_of(const at::Tensor& logits, const at::Tensor& labels, const LossOptions& options) {
  check(logits, labels);
  const std::int64_t count = counted(labels);
  at::Tensor sum = at::cross_entropy_loss(logits.reshape({labels.numel(), logits.size(-1)}), labels.reshape({-1}), {}, at::Reduction::Sum,
                                          kIgnoredLabel, options.label_smoothing);
  if (options.reduction == Reduction::sum || count == 0) return {sum, count};
  return {sum.div(static_cast<double>(count)), count};
}

std::int64_t correct(const at::Tensor& logits, const at::Tensor& labels) {
  check(logits, labels);
  if (labels.numel() == 0) return 0;
  return logits.argmax(-1).eq(labels).sum().item<std::int64_t>();
}

}  // namespace cohort::nn
