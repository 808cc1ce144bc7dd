#include "cohort/nn/objective.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/base/failure_of.h"

namespace cohort::nn {
namespace {

Loss half(const at::Tensor& outputs, const at::Tensor&) { return {outputs.sum() / 2, outputs.numel()}; }
double none(const at::Tensor&, const at::Tensor&) { return 0; }

TEST(Objective, TheDefaultFollowsTheLabels) {
  const Objective classes = default_objective({.classes = 3});
  const at::Tensor logits = torch::tensor({{1.0, 0.0, 0.0}, {0.0, 5.0, 0.0}}), labels = torch::tensor({0, 2}, torch::kLong);
  EXPECT_EQ(classes.metrics.at(0).name, "accuracy");
  EXPECT_EQ(classes.metrics[0].sum(logits, labels), 1);
  EXPECT_EQ(classes.loss(logits, labels).count, 2);
  const Objective targets = default_objective({.input = data::Input::floats, .targets = 3});
  EXPECT_EQ(targets.metrics.at(0).name, "rmse");
  EXPECT_TRUE(targets.metrics[0].root);
  EXPECT_EQ(targets.loss(logits, logits + 2).value.item<double>(), 24);
}

TEST(Objective, LabelSmoothingIsForTrainingAlone) {
  const Objective smoothed = default_objective({.classes = 2}, "auto", 0.2);
  const at::Tensor logits = torch::tensor({{3.0, 0.0}}), labels = torch::tensor({0}, torch::kLong);
  EXPECT_GT(smoothed.loss(logits, labels).value.item<double>(), smoothed.evaluation_loss(logits, labels).value.item<double>());
}

TEST(Objective, OwnMetricsComeAfterTheDefaultsUnlessTheLossIsOwn) {
  const Objective metrics = complete({.metrics = {{"top5", none}}}, {.classes = 3});
  ASSERT_EQ(metrics.metrics.size(), 2u);
  EXPECT_EQ(metrics.metrics[1].name, "top5");
  const Objective own = complete({.loss = half}, {.classes = 3});
  EXPECT_TRUE(own.metrics.empty());
  EXPECT_EQ(own.evaluation_loss(torch::ones({2, 2}), {}).value.item<double>(), 2);
}

TEST(Objective, RefusesNamesThatCannotBeWrittenDown) {
  for (const char* name : {"", "Top 5", "a/b", "loss"})
    EXPECT_EQ(failure_of([&] { complete({.loss = half, .metrics = {{name, none}}}, {}); }).kind, Kind::usage) << name;
  EXPECT_THAT(failure_of([] {
                complete({.loss = half, .metrics = {{"mae", none}, {"mae", none}}}, {});
              }).what,
              testing::HasSubstr("'mae' already"));
  EXPECT_THAT(failure_of([] { complete({.loss = half, .metrics = {{"mae", {}}}}, {}); }).what, testing::HasSubstr("has no function"));
}

}  // namespace
}  // namespace cohort::nn
