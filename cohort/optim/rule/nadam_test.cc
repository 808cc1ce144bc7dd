#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula nadam(double b1, double b2, double eps, double psi, bool decoupled) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    decoupled ? w -= lr* decay* w : g += decay * w;
    s[0] = b1 * s[0] + (1 - b1) * g;
    s[1] = b2 * s[1] + (1 - b2) * g * g;
    const auto mu = [&](double step) { return b1 * (1 - 0.5 * std::pow(0.96, step * psi)); };
    double product = 1;
    for (double step = 1; step <= t; ++step) product *= mu(step);
    const double d = std::sqrt(s[1] / (1 - std::pow(b2, t))) + eps;
    w -= lr * ((1 - mu(t)) / (1 - product) * g + mu(t + 1) / (1 - product * mu(t + 1)) * s[0]) / d;
  };
}

TEST(Nadam, FollowsItsFormulaForFiftySteps) {
  expect_formula("nadam", nadam(0.9, 0.999, 1e-8, 4e-3, false));
  expect_formula("nadam(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.1, momentum_decay=0.3)",
                 nadam(0.8, 0.95, 1e-3, 0.3, false));
  expect_formula("nadam(lr=0.01, weight_decay=0.1, decoupled=true, momentum_decay=0)", nadam(0.9, 0.999, 1e-8, 0, true));
}

TEST(Nadam, LongAfterTheStartAConstantGradientIsSteppedByTheRate) {
  const auto rule = make("nadam(eps=0)");
  Field<double> field(*rule, 1);
  field.g = {-7};
  for (std::int64_t t = 1; t <= 2000; ++t) field.update(*rule, {.step = t, .lr = 0});
  const double before = field.w[0];
  field.update(*rule, {.step = 2001, .lr = 0.01});
  EXPECT_NEAR(field.w[0] - before, 0.01, 1e-5) << "the shares of gradient and momentum add up to one";
}

}  // namespace
}  // namespace cohort::optim
