#include "cohort/optim/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

#include "cohort/base/failure_of.h"
#include "cohort/optim/exact_math.h"

namespace cohort::optim {
namespace {

using testing::HasSubstr;

std::vector<double> rates(std::string_view spec, std::int64_t total, double base, int workers = 1) {
  const Schedule schedule = Schedule::parse(spec);
  std::vector<double> out;
  for (std::int64_t s = 0; s < total; ++s) out.push_back(schedule.lr(s, total, base, workers));
  return out;
}

TEST(Exact, PowersAndCosinesAgreeWithLibm) {
  for (const double base : {0.0, 0.1, 0.9, 0.999})
    for (const int exponent : {0, 1, 2, 3, 10, 1000, 100000})
      EXPECT_NEAR(power(base, exponent), std::pow(base, exponent), 1e-13) << base << "^" << exponent;
  for (const double base : {1.0, 2.0, 3.0, 0.5, 0.7071, 1.4142, 1000.0, 123456789.0})
    for (const double exponent : {-0.8, -0.5, 0.0, 0.3, 1.0, -3.0})
      EXPECT_NEAR(real_power(base, exponent) / std::pow(base, exponent), 1, 1e-14) << base << "^" << exponent;
  EXPECT_EQ(real_power(1, -0.8), 1);
  for (int i = 0; i <= 1000; ++i) EXPECT_NEAR(cos_pi(i / 1000.0), std::cos(std::numbers::pi * i / 1000.0), 1e-15) << i;
  EXPECT_EQ(cos_pi(0), 1);
  EXPECT_EQ(cos_pi(1), -1);
}

TEST(Schedule, ConstantStays) { EXPECT_THAT(rates("constant", 50, 0.1), testing::Each(0.1)); }

TEST(Schedule, StepIsTorchsStepLR) {
  const auto got = rates("step(size=30, gamma=0.1)", 100, 0.5);
  for (int s = 0; s < 100; ++s) EXPECT_DOUBLE_EQ(got[s], 0.5 * std::pow(0.1, s / 30)) << s;
}

TEST(Schedule, MultiStepIsTorchsMultiStepLR) {
  const auto got = rates("multi_step(milestones=\"30, 60, 80\", gamma=0.2)", 100, 0.5);
  for (int s = 0; s < 100; ++s) EXPECT_DOUBLE_EQ(got[s], 0.5 * std::pow(0.2, (s >= 30) + (s >= 60) + (s >= 80))) << s;
}

TEST(Schedule, CosineIsTorchsCosineAnnealingLR) {
  const auto got = rates("cosine(min=0.01)", 100, 0.5);
  for (int s = 0; s < 100; ++s) EXPECT_NEAR(got[s], 0.01 + (0.5 - 0.01) * (1 + std::cos(std::numbers::pi * s / 100)) / 2, 1e-15) << s;
  EXPECT_EQ(Schedule::parse("cosine(min=0.01)").lr(100, 100, 0.5), 0.01);
  EXPECT_EQ(Schedule::parse("cosine(min=0.01)").lr(5000, 100, 0.5), 0.01);
}

TEST(Schedule, PolynomialIsTorchsPolynomialLR) {
  for (const double p : {1.0, 2.0, 0.5}) {
    const auto got = rates(fmt::format("polynomial(power={}, end=0.02)", p), 100, 0.5);
    for (int s = 0; s < 100; ++s) EXPECT_NEAR(got[s], 0.02 + (0.5 - 0.02) * std::pow(1 - s / 100.0, p), 1e-15) << s;
  }
  EXPECT_EQ(Schedule::parse("polynomial").lr(100, 100, 0.5), 0);
}

TEST(Schedule, LengthsBelowOneAreFractionsOfTheTotal) {
  EXPECT_EQ(rates("step(size=0.3)", 100, 1), rates("step(size=30)", 100, 1));
  EXPECT_EQ(rates("multi_step(milestones=\"0.5,0.75\")", 200, 1), rates("multi_step(milestones=\"100,150\")", 200, 1));
  EXPECT_EQ(rates("cosine(warmup=0.05)", 200, 1), rates("cosine(warmup=10)", 200, 1));
}

TEST(Warmup, IsTorchsLinearLRBeforeAConstant) {
  const auto got = rates("constant(warmup=5, warmup_start=0.25)", 10, 0.4);
  for (int s = 0; s < 10; ++s) EXPECT_DOUBLE_EQ(got[s], 0.4 * (0.25 + 0.75 * std::min(5, s) / 5)) << s;
}

TEST(Warmup, StartsFromNothingWhereTheRateIsNotScaled) {
  const auto got = rates("constant(warmup=4)", 6, 1);
  EXPECT_THAT(got, testing::ElementsAre(0, 0.25, 0.5, 0.75, 1, 1));
}

TEST(Warmup, CosineRunsFromItsEndToTheTotal) {
  const auto got = rates("cosine(warmup=20)", 120, 1);
  EXPECT_EQ(got[10], 0.5);
  EXPECT_EQ(got[20], 1);
  for (int s = 20; s < 120; ++s) EXPECT_NEAR(got[s], (1 + std::cos(std::numbers::pi * (s - 20) / 100)) / 2, 1e-15) << s;
}

TEST(Warmup, MilestonesCountFromTheVeryFirstStep) {
  const auto got = rates("multi_step(milestones=\"30\", warmup=5)", 40, 1);
  EXPECT_EQ(got[29], 1);
  EXPECT_DOUBLE_EQ(got[30], 0.1);
}

TEST(Scale, GoyalsRuleWarmsUpFromTheBaseRateToTheScaledOne) {
  const auto got = rates("constant(scale=linear, warmup=10)", 20, 0.1, 8);
  for (int s = 0; s < 20; ++s) EXPECT_NEAR(got[s], 0.1 + (0.8 - 0.1) * std::min(s, 10) / 10, 1e-15) << s;
}

TEST(Scale, FollowsTheWorkersLinearlyByRootOrNotAtAll) {
  EXPECT_DOUBLE_EQ(Schedule::parse("constant(scale=linear)").lr(0, 10, 0.1, 16), 1.6);
  EXPECT_DOUBLE_EQ(Schedule::parse("constant(scale=sqrt)").lr(0, 10, 0.1, 16), 0.4);
  EXPECT_DOUBLE_EQ(Schedule::parse("constant").lr(0, 10, 0.1, 16), 0.1);
}

TEST(Scale, LegwIsTheRootWithKTimesTheEpochsOfWarmup) {
  constexpr double kSamples = 60000, kBatch = 100, kBaseEpochs = 0.05;  // 30 steps of the single worker
  for (const int k : {1, 4, 16}) {
    const auto got = rates("constant(scale=sqrt, warmup=30, warmup_start=0)", 100, 0.1, k);
    for (int s = 0; s < 100; ++s) {
      const double epoch = s * kBatch * k / kSamples;
      EXPECT_NEAR(got[s], 0.1 * std::sqrt(k) * std::min(1.0, epoch / (kBaseEpochs * k)), 1e-15) << s << " of " << k;
    }
  }
}

TEST(Scale, AloneItChangesNothing) {
  for (const auto* shape : {"constant(", "cosine(", "step(size=3, ", "polynomial("})
    for (const auto* scale : {"linear", "sqrt"})
      EXPECT_EQ(rates(fmt::format("{}scale={}, warmup=5)", shape, scale), 20, 0.3),
                rates(fmt::format("{}warmup=5, warmup_start=1)", shape), 20, 0.3));
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THAT(failure_of([] { Schedule::parse("cosin"); }).what, HasSubstr("did you mean 'cosine'"));
  EXPECT_THAT(failure_of([] { Schedule::parse("step"); }).what, HasSubstr("needs size"));
  EXPECT_EQ(failure_of([] { Schedule::parse("step(size=0)"); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { Schedule::parse("multi_step(milestones=\"\")"); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { Schedule::parse("multi_step(milestones=\"10,x\")"); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { Schedule::parse("multi_step(milestones=\"-3\")"); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { Schedule::parse("constant(warmup_start=2)"); }).what, HasSubstr("0 to 1"));
  EXPECT_EQ(failure_of([] { Schedule::parse("constant(scale=cubic)"); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { (void)Schedule::parse("constant").lr(-1, 10, 0.1); }).what, HasSubstr("count from 0"));
  EXPECT_EQ(failure_of([] { (void)Schedule::parse("constant").lr(0, 0, 0.1); }).kind, Kind::usage);
}

TEST(Schedule, ListsEveryShapeForHelp) {
  std::vector<std::string> names;
  for (const SpecSchema* schema : Schedule::schemas()) names.push_back(schema->name());
  EXPECT_THAT(names, testing::ElementsAre("constant", "step", "multi_step", "cosine", "polynomial"));
}

}  // namespace
}  // namespace cohort::optim
