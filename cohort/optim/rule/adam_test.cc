#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula adam(double b1, double b2, double eps, bool amsgrad) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    g += decay * w;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    if (amsgrad) s[2] = std::max(s[2], s[1]);
    const double m = s[0] / (1 - std::pow(b1, t)), v = s[amsgrad ? 2 : 1] / (1 - std::pow(b2, t));
    w -= lr * m / (std::sqrt(v) + eps);
  };
}

TEST(Adam, FollowsItsFormulaForFiftySteps) {
  expect_formula("adam(lr=0.01)", adam(0.9, 0.999, 1e-8, false));
  expect_formula("adam(lr=0.01, weight_decay=0.01)", adam(0.9, 0.999, 1e-8, false));
  expect_formula("adam(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-3)", adam(0.8, 0.95, 1e-3, false));
  expect_formula("adam(lr=0.01, beta2=0.9, amsgrad=true)", adam(0.9, 0.9, 1e-8, true));
}

TEST(Adam, TheFirstStepIsTheRateTimesTheSign) {
  const auto rule = make("adam");
  Field<double> field(*rule, 4);
  field.g = {1e-3, -5, 1e6, 0};
  field.update(*rule, {.step = 1, .lr = 0.25});
  EXPECT_NEAR(field.w[0], -0.25, 1e-5);  // eps is 1e-5 of this gradient
  EXPECT_NEAR(field.w[1], 0.25, 1e-8);
  EXPECT_NEAR(field.w[2], -0.25, 1e-13);
  EXPECT_EQ(field.w[3], 0);
}

TEST(Adam, AConstantGradientKeepsTheStepAtTheRate) {
  const auto rule = make("adam(eps=0)");
  Field<double> field(*rule, 2);
  field.g = {3, -0.01};
  for (std::int64_t t = 1; t <= 200; ++t) field.update(*rule, {.step = t, .lr = 0.01});
  EXPECT_NEAR(field.w[0], -2, 1e-11);
  EXPECT_NEAR(field.w[1], 2, 1e-11);
}

TEST(Adam, AmsgradNeverForgetsTheLargestMoment) {
  const auto rule = make("adam(beta2=0.5, amsgrad=true)");
  Field<double> field(*rule, 1);
  field.g = {8};
  field.update(*rule, {.step = 1, .lr = 0.1});
  const double most = field.s[2][0];
  field.g = {0.1};
  for (std::int64_t t = 2; t <= 20; ++t) field.update(*rule, {.step = t, .lr = 0.1});
  EXPECT_EQ(field.s[2][0], most);
  EXPECT_LT(field.s[1][0], most / 1000);
  field.g = {std::nan("")};
  field.update(*rule, {.step = 21, .lr = 0.1});
  EXPECT_TRUE(std::isnan(field.s[2][0]));  // a broken gradient is not hidden by the maximum
}

TEST(Adam, StatesCarryTorchsNames) {
  EXPECT_THAT(make("adam")->state_names(), testing::ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(make("adam(amsgrad=true)")->state_names(), testing::ElementsAre("exp_avg", "exp_avg_sq", "max_exp_avg_sq"));
}

}  // namespace
}  // namespace cohort::optim
