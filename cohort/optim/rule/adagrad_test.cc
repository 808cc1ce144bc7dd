#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula adagrad(double lr_decay, double eps) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    g += decay * w;
    s[0] += g * g;
    w -= lr / (1 + (t - 1) * lr_decay) * g / (std::sqrt(s[0]) + eps);
  };
}

TEST(Adagrad, FollowsItsFormulaForFiftySteps) {
  expect_formula("adagrad", adagrad(0, 1e-10));
  expect_formula("adagrad(lr=0.1, lr_decay=0.02, weight_decay=0.01)", adagrad(0.02, 1e-10));
  expect_formula("adagrad(lr=0.1, initial_accumulator_value=0.5, eps=1e-4)", adagrad(0, 1e-4));
}

TEST(Adagrad, AfterTEqualGradientsTheStepIsTheRateOverTheRootOfT) {
  const auto rule = make("adagrad(eps=0)");
  Field<double> field(*rule, 2);
  field.g = {1e-4, -700};
  for (std::int64_t t = 1; t <= 100; ++t) {
    const std::vector<double> before = field.w;
    field.update(*rule, {.step = t, .lr = 0.1});
    const double step = 0.1 / std::sqrt(static_cast<double>(t));
    EXPECT_NEAR(before[0] - field.w[0], step, 1e-14);
    EXPECT_NEAR(before[1] - field.w[1], -step, 1e-14);
  }
}

TEST(Adagrad, SaysWhatItsSumStartsFrom) {
  EXPECT_EQ(make("adagrad")->initial_state(0), 0);
  EXPECT_EQ(make("adagrad(initial_accumulator_value=0.1)")->initial_state(0), 0.1);
}

}  // namespace
}  // namespace cohort::optim
