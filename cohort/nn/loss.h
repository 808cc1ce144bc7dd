// What training makes small, as a sum and a count, so that ranks with uneven or empty batches average over the samples that exist:
//   mean over all ranks = (sum of sums) / (sum of counts)
//   const ConfiguredLoss loss("auto", form.targets > 0);      // cross_entropy for classes and tokens, mse for targets
//   const Loss batch_loss = loss(outputs, labels);
// Classes: outputs are logits [n, classes] with labels [n], or tokens: logits [n, t, vocabulary] with labels [n, t]. Regression: outputs
// and labels are [n, targets], and each of the targets counts. Threads: any. Failure: Kind::usage when the shapes do not fit together. A
// batch of nothing costs 0 and has gradients of 0. To add one: losses/<word>.cc with row_<word>, the word in losses/CMakeLists.txt,
// losses/<word>_test.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/spec.h"

namespace cohort::nn {

enum class Reduction { sum, mean };
inline constexpr std::int64_t kIgnoredLabel = -100;  // torch's: padding, positions without a next token

struct LossOptions {
  Reduction reduction = Reduction::sum;
  double label_smoothing = 0;  // of classes only
};

struct Loss {
  at::Tensor value;        // a scalar to call backward() on
  std::int64_t count = 0;  // labels that were not ignored; targets
};

struct LossKind {
  std::string_view name, about;
  std::vector<SpecParam> (*params)();
  bool regression;           // its labels are float targets; else classes
  std::string_view measure;  // what an evaluation reports beside it: accuracy, rmse (root mean squared error), mae (mean absolute error)
  Loss (*sum)(const at::Tensor& outputs, const at::Tensor& labels, const SpecValues& values, const LossOptions& options);
};

std::span<const LossKind* const> loss_kinds();
void add_loss(const LossKind& row, std::string_view plugin);  // row: stays for good
std::string loss_help();                                      // every loss with its parameters

// The loss that settings name, with its parameters.
class ConfiguredLoss {
 public:
  // spec: a loss with its parameters, or auto. Kind::usage for one that does not go with the labels.
  ConfiguredLoss(std::string_view spec, bool regression);

  Loss operator()(const at::Tensor& outputs, const at::Tensor& labels, const LossOptions& options = {}) const;
  bool regression() const { return kind_.regression; }
  std::string_view name() const { return kind_.name; }
  std::string_view measure() const { return kind_.measure; }
  // A batch's share of the measure, to be added up: correct labels, squared or absolute errors. An rmse is the root of their mean.
  double measure_sum(const at::Tensor& outputs, const at::Tensor& labels) const;

 private:
  const LossKind& kind_;
  SpecValues values_;
};

// Cross entropy, see losses/cross_entropy.cc.
Loss loss_of(const at::Tensor& logits, const at::Tensor& labels, const LossOptions& options = {});
// How many labels are the most likely class. Ignored labels are never correct.
std::int64_t correct(const at::Tensor& logits, const at::Tensor& labels);

// For losses/: both sizes are the same, or Kind::usage.
void check_targets(const at::Tensor& outputs, const at::Tensor& targets);

}  // namespace cohort::nn
