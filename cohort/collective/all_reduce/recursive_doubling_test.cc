#include <gtest/gtest.h>

#include "cohort/collective/plans/simulate.h"

namespace cohort::collective {

TEST(RecursiveDoublingPlan, FollowsTheCanonicalBracketForAnyRankCountAndSize) {
  for (int ranks = 1; ranks <= 33; ++ranks)
    for (const std::size_t count : {0, 1, 2, 3, 7, 64, 101}) {
      const auto held = simulate(recursive_doubling_plan, ranks, count);
      ASSERT_EQ(held.size(), static_cast<std::size_t>(ranks)) << "stuck with " << ranks << " ranks, " << count << " elements";
      for (const Texts& texts : held)
        for (const auto& text : texts) ASSERT_EQ(text, bracket_text(0, ranks)) << ranks << " ranks, " << count << " elements";
    }
}

TEST(RecursiveDoublingPlan, TakesLog2RoundsWithPowersOfTwo) {
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(recursive_doubling_plan(rank, 8, 10).size(), 3u);
}

}  // namespace cohort::collective
