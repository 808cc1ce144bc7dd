#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {

TEST(Mse, IsTheSumOfSquaresAndCountsEveryTarget) {
  const at::Tensor outputs = at::tensor({1.0, 2.0, 3.0, 4.0}).reshape({2, 2}).requires_grad_(true);
  const at::Tensor targets = at::tensor({1.0, 0.0, 6.0, 4.0}).reshape({2, 2});
  const ConfiguredLoss mse("mse", true);
  const Loss loss = mse(outputs, targets);
  EXPECT_EQ(loss.value.item<double>(), 4 + 9);
  EXPECT_EQ(loss.count, 4);
  EXPECT_EQ(mse(outputs, targets, {.reduction = Reduction::mean}).value.item<double>(), 13.0 / 4);
  loss.value.backward();
  EXPECT_EQ(outputs.grad()[0][1].item<double>(), 2 * (2.0 - 0.0));
  EXPECT_EQ(mse.measure(), "rmse");
  EXPECT_EQ(mse.measure_sum(outputs.detach(), targets), 13);
}

TEST(Mse, ABatchOfNothingCostsNothingAndHasGradients) {
  const at::Tensor outputs = at::full({0, 2}, 0.0).requires_grad_(true);
  const Loss loss = ConfiguredLoss("mse", true)(outputs, at::full({0, 2}, 0.0));
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(loss.value.item<double>(), 0);
  loss.value.backward();
  EXPECT_EQ(outputs.grad().sizes(), at::IntArrayRef({0, 2}));
}

TEST(Mse, RefusesOutputsThatWouldBroadcast) {
  const Error error = failure_of([] { ConfiguredLoss("mse", true)(at::full({4, 1}, 0.0), at::full({4, 3}, 0.0)); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("outputs [4, 1] and targets [4, 3]"));
}

}  // namespace cohort::nn
