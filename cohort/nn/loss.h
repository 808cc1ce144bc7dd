// Cross entropy as a sum and a count, so that ranks with uneven or empty batches average over the samples that exist:
//   loss = sum_i -log softmax(logits_i)[label_i],   mean over all ranks = (sum of sums) / (sum of counts)
//   with label smoothing s over K classes: the target is (1 - s) on the label plus s / K on every class.
// Logits [n, classes] with labels [n], or tokens: logits [n, t, vocabulary] with labels [n, t].
// Threads: any. Failure: Kind::usage when the shapes do not fit together. A batch of nothing costs 0 and has gradients of 0.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace cohort::nn {

enum class Reduction { sum, mean };
inline constexpr std::int64_t kIgnoredLabel = -100;  // torch's: padding, positions without a next token

struct LossOptions {
  Reduction reduction = Reduction::sum;
  double label_smoothing = 0;
};

struct Loss {
  at::Tensor value;        // a scalar to call backward() on
  std::int64_t count = 0;  // labels that were not ignored
};

Loss loss_of(const at::Tensor& logits, const at::Tensor& labels, const LossOptions& options = {});
// How many labels are the most likely class. Ignored labels are never correct.
std::int64_t correct(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace cohort::nn
