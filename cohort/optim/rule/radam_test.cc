#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula radam(double b1, double b2, double eps, bool decoupled) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    decoupled ? w -= lr* decay* w : g += decay * w;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    const double m = s[0] / (1 - std::pow(b1, t)), correction = 1 - std::pow(b2, t);
    const double longest = 2 / (1 - b2) - 1, seen = longest - 2 * t * std::pow(b2, t) / correction;
    const double rectified = (seen - 4) * (seen - 2) * longest / ((longest - 4) * (longest - 2) * seen);
    w -= lr * m * (seen > 5 ? std::sqrt(rectified) * std::sqrt(correction) / (std::sqrt(s[1]) + eps) : 1);
  };
}

TEST(Radam, FollowsItsFormulaForFiftySteps) {
  expect_formula("radam", radam(0.9, 0.999, 1e-8, false));
  expect_formula("radam(lr=0.01, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1)", radam(0.8, 0.9, 1e-3, false));
  expect_formula("radam(lr=0.01, weight_decay=0.1, decoupled=true)", radam(0.9, 0.999, 1e-8, true));
  expect_formula("radam(lr=0.01, beta2=0.5)", radam(0.9, 0.5, 1e-8, false));  // never enough seen
}

TEST(Radam, TheFirstFiveStepsAreMomentumThenItsLengthIsBounded) {
  const auto rule = make("radam(eps=0)");
  Field<double> field(*rule, 1);
  field.g = {1000};
  for (std::int64_t t = 1; t <= 5; ++t) field.update(*rule, {.step = t, .lr = 0.01});
  EXPECT_NEAR(field.w[0], -50, 1e-10) << "in proportion to the gradient";
  field.update(*rule, {.step = 6, .lr = 0.01});
  EXPECT_LT(-50 - field.w[0], 0.01) << "by moments, and less than adam's";
}

TEST(Radam, AfterManyStepsItIsAdam) {
  const auto radam = make("radam"), adam = make("adam");
  Field<double> one(*radam, 50), other(*adam, 50);
  std::mt19937 random(4);
  for (std::int64_t t = 1; t <= 20000; ++t) {
    if (t % 100 == 1) fill_normal(one.g, random);
    other.g = one.g;
    one.update(*radam, {.step = t, .lr = t < 20000 ? 0.0 : 1.0});
    other.update(*adam, {.step = t, .lr = t < 20000 ? 0.0 : 1.0});
  }
  for (std::size_t i = 0; i < one.w.size(); ++i) EXPECT_NEAR(one.w[i], other.w[i], 1e-4 * std::abs(other.w[i]) + 1e-9);
}

}  // namespace
}  // namespace cohort::optim
