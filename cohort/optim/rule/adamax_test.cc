#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula adamax(double b1, double b2, double eps) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    g += decay * w;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = std::max(b2 * s[1], std::abs(g) + eps);
    w -= lr / (1 - std::pow(b1, t)) * s[0] / s[1];
  };
}

TEST(Adamax, FollowsItsFormulaForFiftySteps) {
  expect_formula("adamax", adamax(0.9, 0.999, 1e-8));
  expect_formula("adamax(lr=0.01, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1)", adamax(0.8, 0.9, 1e-3));
}

TEST(Adamax, AConstantGradientKeepsTheStepAtTheRate) {
  const auto rule = make("adamax");
  Field<double> field(*rule, 3);
  field.g = {300, -0.5, 0};
  for (std::int64_t t = 1; t <= 100; ++t) field.update(*rule, {.step = t, .lr = 0.01});
  EXPECT_NEAR(field.w[0], -1, 1e-7);
  EXPECT_NEAR(field.w[1], 1, 1e-7);
  EXPECT_EQ(field.w[2], 0);
}

TEST(Adamax, OneLargeGradientShortensTheStepsAfterItByItself) {
  const auto rule = make("adamax(beta1=0, beta2=0.5)");
  Field<double> field(*rule, 1);
  field.g = {64};
  field.update(*rule, {.step = 1, .lr = 1});
  field.g = {1};
  for (std::int64_t t = 2; t <= 4; ++t) {
    const double before = field.w[0];
    field.update(*rule, {.step = t, .lr = 1});
    EXPECT_NEAR(before - field.w[0], std::pow(2, static_cast<double>(t) - 1) / 64, 1e-9);
  }
}

}  // namespace
}  // namespace cohort::optim
