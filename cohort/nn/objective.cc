#include "cohort/nn/objective.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::nn {
namespace {

void check_metrics(const std::vector<Metric>& metrics) {
  std::set<std::string> known{"loss"};
  for (const Metric& metric : metrics) {
    const bool plain = !metric.name.empty() && std::ranges::all_of(metric.name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!plain) throw_failure(Kind::usage, "a metric '{}' cannot be written down: its name is of a-z, 0-9 and _", metric.name);
    if (!known.insert(metric.name).second)
      throw_failure(Kind::usage, "there is a metric '{}' already; give the second one a name of its own", metric.name);
    if (!metric.sum) throw_failure(Kind::usage, "metric '{}' has no function", metric.name);
  }
}

}  // namespace

Objective default_objective(const data::Form& form, std::string_view spec, double label_smoothing) {
  const auto loss = std::make_shared<const ConfiguredLoss>(spec, form.targets > 0);
  const auto smoothed = [&loss](double smoothing) {
    return [loss, smoothing](const at::Tensor& outputs, const at::Tensor& labels) {
      return (*loss)(outputs, labels, {.label_smoothing = smoothing});
    };
  };
  const auto measure = [loss](const at::Tensor& outputs, const at::Tensor& labels) { return loss->measure_sum(outputs, labels); };
  const std::string name(loss->measure());
  return {.loss = smoothed(loss->regression() ? 0 : label_smoothing),
          .metrics = {{.name = name, .sum = measure, .percent = name == "accuracy", .root = name == "rmse"}},
          .evaluation_loss = smoothed(0)};
}

Objective complete(Objective objective, const data::Form& form, std::string_view loss, double label_smoothing) {
  if (!objective.loss) {
    Objective whole = default_objective(form, loss, label_smoothing);
    whole.metrics.insert(whole.metrics.end(), objective.metrics.begin(), objective.metrics.end());
    if (objective.evaluation_loss) whole.evaluation_loss = std::move(objective.evaluation_loss);
    objective = std::move(whole);
  }
  if (!objective.evaluation_loss) objective.evaluation_loss = objective.loss;
  check_metrics(objective.metrics);
  return objective;
}

}  // namespace cohort::nn
