#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula sgd(double momentum, double dampening, bool nesterov) {
  return [=](double& w, double g, std::vector<double>& s, double t, double lr, double decay) {
    g += decay * w;
    if (momentum != 0) {
      s[0] = t == 1 ? g : momentum * s[0] + (1 - dampening) * g;
      g = nesterov ? g + momentum * s[0] : s[0];
    }
    w -= lr * g;
  };
}

TEST(Sgd, FollowsItsFormulaForFiftySteps) {
  expect_formula("sgd(lr=0.1)", sgd(0, 0, false));
  expect_formula("sgd(lr=0.1, weight_decay=5e-4)", sgd(0, 0, false));
  expect_formula("sgd(lr=0.1, momentum=0.9, weight_decay=5e-4)", sgd(0.9, 0, false));
  expect_formula("sgd(lr=0.1, momentum=0.9, dampening=0.3)", sgd(0.9, 0.3, false));
  expect_formula("sgd(lr=0.1, momentum=0.9, nesterov=true, weight_decay=5e-4)", sgd(0.9, 0, true));
}

TEST(Sgd, ShrinksAQuadraticByOneMinusTheRateEachStep) {
  const auto rule = make("sgd");
  Field<double> field(*rule, 5, 3.0);
  for (std::int64_t t = 1; t <= 100; ++t) {
    field.g = field.w;  // the gradient of w^2 / 2
    field.update(*rule, {.step = t, .lr = 0.05});
    EXPECT_NEAR(field.w[4], 3.0 * std::pow(0.95, static_cast<double>(t)), 1e-14);
  }
}

TEST(Sgd, TheBufferOfAConstantGradientTendsToItsGeometricSum) {
  const auto rule = make("sgd(momentum=0.5)");
  Field<double> field(*rule, 3);
  field.g = {1, 2, -4};
  for (std::int64_t t = 1; t <= 60; ++t) field.update(*rule, {.step = t, .lr = 0.1});
  EXPECT_NEAR(field.s[0][0], 2, 1e-14);
  EXPECT_NEAR(field.s[0][2], -8, 1e-14);
}

TEST(Sgd, TheFirstStepTakesTheGradientUndampedAndNeverReadsTheBuffer) {
  const auto rule = make("sgd(momentum=0.9, dampening=0.5)");
  Field<float> field(*rule, 9);
  std::fill(field.g.begin(), field.g.end(), 2.0F);
  std::fill(field.s[0].begin(), field.s[0].end(), std::nanf(""));
  field.update(*rule, {.step = 1, .lr = 1});
  EXPECT_EQ(field.s[0], std::vector<float>(9, 2.0F));
  EXPECT_EQ(field.w, std::vector<float>(9, -2.0F));
}

TEST(Sgd, KeepsABufferOnlyWithMomentum) {
  EXPECT_TRUE(make("sgd")->state_names().empty());
  EXPECT_THAT(make("sgd(momentum=0.9)")->state_names(), testing::ElementsAre("momentum_buffer"));
}

TEST(Sgd, RefusesNesterovWithoutMomentumOrWithDampening) {
  EXPECT_EQ(failure_of([] { make("sgd(nesterov=true)"); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { make("sgd(momentum=0.9, nesterov=true, dampening=0.1)"); }).what, testing::HasSubstr("dampening 0.1"));
}

}  // namespace
}  // namespace cohort::optim
