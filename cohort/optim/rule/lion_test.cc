#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula lion(double b1, double b2) {
  return [=](double& w, double g, std::vector<double>& s, double, double lr, double decay) {
    const double c = b1 * s[0] + (1 - b1) * g;
    w -= lr * ((c > 0 ? 1 : c < 0 ? -1 : 0) + decay * w);
    s[0] = b2 * s[0] + (1 - b2) * g;
  };
}

TEST(Lion, FollowsItsFormulaForFiftySteps) {
  expect_formula("lion", lion(0.9, 0.99));
  expect_formula("lion(lr=0.01, beta1=0.5, beta2=0.8, weight_decay=0.3)", lion(0.5, 0.8));
}

TEST(Lion, EveryElementMovesByTheRateWhateverItsGradient) {
  const auto rule = make("lion");
  Field<float> field(*rule, 5);
  field.g = {1e-30F, -1e30F, 3, 0, std::nanf("")};
  field.update(*rule, {.step = 1, .lr = 0.25});
  EXPECT_EQ(std::vector<float>(field.w.begin(), field.w.begin() + 4), (std::vector<float>{-0.25F, 0.25F, -0.25F, 0}));
  EXPECT_TRUE(std::isnan(field.w[4])) << "a broken gradient is not hidden by its sign";
}

TEST(Lion, ASingleOppositeGradientDoesNotTurnALongMomentum) {
  const auto rule = make("lion(beta1=0.9, beta2=0.5)");
  Field<double> field(*rule, 1);
  field.g = {1};
  for (std::int64_t t = 1; t <= 20; ++t) field.update(*rule, {.step = t, .lr = 1});
  field.g = {-1};
  field.update(*rule, {.step = 21, .lr = 1});
  EXPECT_EQ(field.w[0], -21);
  field.update(*rule, {.step = 22, .lr = 1});
  EXPECT_EQ(field.w[0], -20) << "two do";
}

}  // namespace
}  // namespace cohort::optim
