#include "cohort/observe/straggler_detector.h"

#include <gtest/gtest.h>

namespace cohort::observe {
namespace {

using Ranks = std::vector<Rank>;

void steps(StragglerDetector& s, int count, std::vector<double> rates) {
  for (int i = 0; i < count; ++i)
    for (std::size_t r = 0; r < rates.size(); ++r) s.add(Rank{static_cast<std::int32_t>(r)}, rates[r]);
}

TEST(StragglerDetector, ARankAtHalfTheMedianIsReportedOnceAndWithinTwentySteps) {
  StragglerDetector s;
  steps(s, 50, {100, 101, 99, 100});
  EXPECT_TRUE(s.changes().empty());
  int after = 0, reported = 0;
  for (; after < 40; ++after) {
    steps(s, 1, {100, 101, 50, 100});
    for (const auto& change : s.changes()) {
      ++reported;
      EXPECT_EQ(change.rank, Rank{2});
      EXPECT_TRUE(change.slow);
      EXPECT_LE(after, 20);
    }
  }
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(s.slow(), Ranks{Rank{2}});
}

TEST(StragglerDetector, OneSlowStepIsNotReported) {
  StragglerDetector s;
  for (int i = 0; i < 100; ++i) {
    steps(s, 1, {100, 100, i % 5 == 4 ? 40.0 : 100.0, 100});
    EXPECT_TRUE(s.changes().empty()) << i;
  }
}

TEST(StragglerDetector, TheLimitIsFourFifthsOfTheMedianWithHysteresis) {
  StragglerDetector s;
  steps(s, 60, {100, 100, 81, 79});
  ASSERT_EQ(s.changes().size(), 1u);
  EXPECT_EQ(s.slow(), Ranks{Rank{3}});
  steps(s, 60, {100, 100, 81, 83});
  EXPECT_TRUE(s.changes().empty()) << "it does not flap around the limit";
  steps(s, 60, {100, 100, 81, 90});
  const auto changes = s.changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].slow);
  EXPECT_EQ(describe(changes[0]), "rank 3 is no longer slow: 0.90 of the median throughput");
}

TEST(StragglerDetector, OfTwoTheSlowerIsReportedAndASingleRankNever) {
  StragglerDetector two, one;
  steps(two, 5, {100, 50});
  two.changes();
  EXPECT_EQ(two.slow(), Ranks{Rank{1}});
  steps(one, 5, {1});
  EXPECT_TRUE(one.changes().empty());
}

TEST(StragglerDetector, AForgottenRankIsNotReported) {
  StragglerDetector s;
  steps(s, 5, {100, 100, 10});
  s.changes();
  s.forget(Rank{2});
  EXPECT_TRUE(s.slow().empty());
}

}  // namespace
}  // namespace cohort::observe
