#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

Formula adadelta(double rho, double eps) {
  return [=](double& w, double g, std::vector<double>& s, double, double lr, double decay) {
    g += decay * w;
    s[0] = rho * s[0] + (1 - rho) * g * g;
    const double d = std::sqrt(s[1] + eps) / std::sqrt(s[0] + eps) * g;
    s[1] = rho * s[1] + (1 - rho) * d * d;
    w -= lr * d;
  };
}

TEST(Adadelta, FollowsItsFormulaForFiftySteps) {
  expect_formula("adadelta", adadelta(0.9, 1e-6));
  expect_formula("adadelta(lr=0.3, rho=0.95, eps=1e-4, weight_decay=0.1)", adadelta(0.95, 1e-4));
}

TEST(Adadelta, StepsDoNotDependOnTheUnitOfTheLoss) {
  const auto rule = make("adadelta(eps=1e-30)");
  Field<double> quiet(*rule, 30), loud(*rule, 30);
  for (auto* field : {&quiet, &loud}) std::fill(field->s[1].begin(), field->s[1].end(), 1.0);
  std::mt19937 random(2);
  for (std::int64_t t = 1; t <= 20; ++t) {
    fill_normal(quiet.g, random);
    std::transform(quiet.g.begin(), quiet.g.end(), loud.g.begin(), [](double g) { return 1e5 * g; });
    quiet.update(*rule, {.step = t, .lr = 1});
    loud.update(*rule, {.step = t, .lr = 1});
  }
  for (std::size_t i = 0; i < 30; ++i) EXPECT_NEAR(loud.w[i], quiet.w[i], 1e-12);
}

TEST(Adadelta, RefusesAnEpsWithoutWhichNothingWouldEverMove) {
  EXPECT_EQ(failure_of([] { make("adadelta(eps=0)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::optim
