#include "cohort/nn/loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"

namespace cohort::nn {
namespace {

TEST(Loss, IsTheSumOverSamplesAndTheirCount) {
  const at::Tensor logits = at::randn({6, 4}, at::kDouble);
  const at::Tensor labels = at::randint(4, {6}, at::kLong);
  const Loss loss = loss_of(logits, labels);
  EXPECT_EQ(loss.count, 6);
  const at::Tensor picked = at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1));
  EXPECT_NEAR(loss.value.item<double>(), -picked.sum().item<double>(), 1e-12);
  EXPECT_NEAR(loss_of(logits, labels, {.reduction = Reduction::mean}).value.item<double>(), loss.value.item<double>() / 6, 1e-12);
}

TEST(Loss, TokensAreSamplesToo) {
  const at::Tensor logits = at::randn({2, 5, 7}, at::kDouble);
  const at::Tensor labels = at::randint(7, {2, 5}, at::kLong);
  labels[0][4].fill_(kIgnoredLabel);
  const Loss whole = loss_of(logits, labels);
  EXPECT_EQ(whole.count, 9);
  const double rows = loss_of(logits[0], labels[0]).value.item<double>() + loss_of(logits[1], labels[1]).value.item<double>();
  EXPECT_NEAR(whole.value.item<double>(), rows, 1e-12);
}

TEST(Loss, SmoothingSpreadsTheTargetOverTheClasses) {
  const at::Tensor logits = at::randn({3, 5}, at::kDouble);
  const at::Tensor labels = at::randint(5, {3}, at::kLong);
  const double plain = loss_of(logits, labels).value.item<double>();
  const double uniform = -at::log_softmax(logits, 1).sum().item<double>() / 5;
  EXPECT_NEAR(loss_of(logits, labels, {.label_smoothing = 0.1}).value.item<double>(), 0.9 * plain + 0.1 * uniform, 1e-12);
}

TEST(Loss, ABatchOfNothingCostsNothingAndHasGradients) {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
    const at::Tensor logits = at::zeros({0, 3}).requires_grad_(true);
    const Loss loss = loss_of(logits, at::zeros({0}, at::kLong), {.reduction = reduction});
    EXPECT_EQ(loss.count, 0);
    EXPECT_EQ(loss.value.item<float>(), 0.0F);
    loss.value.backward();
    EXPECT_EQ(logits.grad().sizes(), at::IntArrayRef({0, 3}));
  }
  EXPECT_EQ(correct(at::zeros({0, 3}), at::zeros({0}, at::kLong)), 0);
}

TEST(Loss, CountsWhatIsCorrect) {
  at::Tensor logits = at::zeros({3, 4});
  logits[0][1] = 1;
  logits[1][2] = 1;
  logits[2][3] = 1;
  at::Tensor labels = at::full({3}, 2, at::kLong);
  EXPECT_EQ(correct(logits, labels), 1);
  labels[1] = kIgnoredLabel;
  EXPECT_EQ(correct(logits, labels), 0);
}

TEST(Loss, ShapesThatDoNotFitAreNamed) {
  EXPECT_THAT(failure_of([] {
                loss_of(at::zeros({4, 3}), at::zeros({5}, at::kLong));
              }).what,
              testing::HasSubstr("logits [4, 3] and labels [5]"));
  EXPECT_EQ(failure_of([] { correct(at::zeros({4, 3}), at::zeros({4, 3}, at::kLong)); }).kind, Kind::usage);
}

TEST(Loss, AutoFollowsTheLabels) {
  EXPECT_EQ(ConfiguredLoss("auto", false).name(), "cross_entropy");
  EXPECT_EQ(ConfiguredLoss("auto", true).name(), "mse");
}

TEST(Loss, ThatDoesNotGoWithTheLabelsIsRefusedByName) {
  EXPECT_THAT(failure_of([] { ConfiguredLoss("mse", false); }).what, testing::HasSubstr("loss=mse is for float targets"));
  EXPECT_THAT(failure_of([] { ConfiguredLoss("cross_entropy", true); }).what, testing::HasSubstr("mse, mae, huber"));
  EXPECT_THAT(failure_of([] { ConfiguredLoss("hubert", true); }).what, testing::HasSubstr("huber"));
}

}  // namespace
}  // namespace cohort::nn
