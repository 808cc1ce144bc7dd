#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula adamw(double b1, double b2, double eps, bool amsgrad) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    w -= lr * decay * w;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    if (amsgrad) s[2] = std::max(s[2], s[1]);
    const double m = s[0] / (1 - std::pow(b1, t)), v = s[amsgrad ? 2 : 1] / (1 - std::pow(b2, t));
    w -= lr * m / (std::sqrt(v) + eps);
  };
}

TEST(AdamW, FollowsItsFormulaForFiftySteps) {
  expect_formula("adamw(lr=0.01)", adamw(0.9, 0.999, 1e-8, false));
  expect_formula("adamw(lr=0.01, weight_decay=0.1, beta2=0.95)", adamw(0.9, 0.95, 1e-8, false));
  expect_formula("adamw(lr=0.01, beta2=0.9, amsgrad=true)", adamw(0.9, 0.9, 1e-8, true));
}

TEST(AdamW, WithoutGradientsWeightsShrinkGeometrically) {
  const auto rule = make("adamw");
  Field<double> field(*rule, 3, 2.0);
  for (std::int64_t t = 1; t <= 80; ++t) field.update(*rule, {.step = t, .lr = 0.1}, {.weight_decay = 0.2});
  EXPECT_NEAR(field.w[1], 2 * std::pow(0.98, 80), 1e-14);
  EXPECT_EQ(field.s[0][1], 0);  // decay stays out of the moments
}

TEST(AdamW, WithoutWeightDecayItIsAdamBitForBit) {
  const auto rule = make("adamw"), adam = make("adam");
  Field<float> ours(*rule, 77), theirs(*adam, 77);
  std::mt19937 random(3);
  for (std::int64_t t = 1; t <= 10; ++t) {
    fill_normal(ours.g, random);
    theirs.g = ours.g;
    ours.update(*rule, {.step = t, .lr = 0.01});
    theirs.update(*adam, {.step = t, .lr = 0.01});
  }
  EXPECT_TRUE(ours.same_bits(theirs));
}

}  // namespace
}  // namespace cohort::optim
