// What a model is trained for and measured by: a loss and named metrics. All of them are sums over samples, so that ranks with uneven or
// empty batches average over the samples that exist, and n ranks equal one with n times the batch.
//   nn::Objective o{.loss = [](const at::Tensor& out, const at::Tensor& y) { return nn::Loss{(out - y).square().sum(), y.numel()}; },
//                   .metrics = {{"mae", [](const at::Tensor& out, const at::Tensor& y) { return (out - y).abs().sum().item<double>(); }}}};
// Owner: values. Threads: the one that trains; evaluation calls them without gradients. Failure: Kind::usage for names that cannot be.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {

// outputs: what the model gives, in fp32; labels: those of the same samples (batch.h).
using LossFunction = std::function<Loss(const at::Tensor& outputs, const at::Tensor& labels)>;

struct Metric {
  std::string name;  // a-z, 0-9 and _: "test mae" on the screen, test_mae in metrics.jsonl
  std::function<double(const at::Tensor& outputs, const at::Tensor& labels)> sum;  // evaluation divides it by what the loss counts
  bool percent = false;                                                            // 0.912 is shown as 91.20 %
  bool root = false;                                                               // of that mean: for a sum of squared errors
};

struct Objective {
  LossFunction loss{};             // none: the one that the setting `loss` says, and its metric before those below
  std::vector<Metric> metrics{};   // of evaluation
  LossFunction evaluation_loss{};  // none: loss
};

// What the setting `loss` says: auto is cross entropy and accuracy for classes and tokens, mse and rmse for float targets.
Objective default_objective(const data::Form& form, std::string_view loss = "auto", double label_smoothing = 0);

// With the default for what is missing.
Objective complete(Objective objective, const data::Form& form, std::string_view loss = "auto", double label_smoothing = 0);

}  // namespace cohort::nn
