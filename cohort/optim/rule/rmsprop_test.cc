#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula rmsprop(double alpha, double eps, double momentum, bool centered) {
  return [=](double& w, double g, std::vector<double>& s, double, double lr, double decay) {
    g += decay * w;
    s[0] = alpha * s[0] + (1 - alpha) * g * g;
    if (centered) s[1] = alpha * s[1] + (1 - alpha) * g;
    const double square = centered ? s[0] - s[1] * s[1] : s[0];
    double step = g / (std::sqrt(square) + eps);
    if (momentum > 0) step = s.back() = momentum * s.back() + step;
    w -= lr * step;
  };
}

TEST(Rmsprop, FollowsItsFormulaForFiftySteps) {
  expect_formula("rmsprop", rmsprop(0.99, 1e-8, 0, false));
  expect_formula("rmsprop(alpha=0.9, eps=1e-3, weight_decay=0.01)", rmsprop(0.9, 1e-3, 0, false));
  expect_formula("rmsprop(lr=1e-3, momentum=0.9)", rmsprop(0.99, 1e-8, 0.9, false));
  expect_formula("rmsprop(centered=true)", rmsprop(0.99, 1e-8, 0, true));
  expect_formula("rmsprop(lr=1e-3, centered=true, momentum=0.5)", rmsprop(0.99, 1e-8, 0.5, true));
}

TEST(Rmsprop, OnAConstantGradientTheStepFollowsTheFillingOfTheMean) {
  const auto rule = make("rmsprop(alpha=0.9, eps=0)");
  Field<double> field(*rule, 1);
  field.g = {1e5};
  for (std::int64_t t = 1; t <= 50; ++t) {
    const double before = field.w[0];
    field.update(*rule, {.step = t, .lr = 0.01});
    EXPECT_NEAR(before - field.w[0], 0.01 / std::sqrt(1 - std::pow(0.9, static_cast<double>(t))), 1e-13);
  }
}

TEST(Rmsprop, AVarianceRoundedBelowZeroIsNoNaN) {
  const auto rule = make("rmsprop(alpha=0.5, centered=true, eps=1e-3)");
  Field<float> field(*rule, 1000);
  std::mt19937 random(1);
  fill_normal(field.g, random);
  for (std::int64_t t = 1; t <= 60; ++t) field.update(*rule, {.step = t, .lr = 1e-6});  // the variance of a constant is 0 but for rounding
  int below = 0;
  for (std::size_t i = 0; i < field.w.size(); ++i) below += field.s[0][i] < field.s[1][i] * field.s[1][i];
  EXPECT_GT(below, 0) << "the case this test is about did not come up";
  for (const float w : field.w) ASSERT_TRUE(std::isfinite(w));
}

TEST(Rmsprop, KeepsOnlyTheStatesItUses) {
  EXPECT_THAT(make("rmsprop")->state_names(), testing::ElementsAre("square_avg"));
  EXPECT_THAT(make("rmsprop(centered=true, momentum=0.9)")->state_names(),
              testing::ElementsAre("square_avg", "grad_avg", "momentum_buffer"));
}

}  // namespace
}  // namespace cohort::optim
