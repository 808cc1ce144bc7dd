#include <gtest/gtest.h>

#include "cohort/collective/plans/simulate.h"

namespace cohort::collective {

TEST(HalvingDoublingPlan, FollowsTheCanonicalBracketForAnyRankCountAndSize) {
  for (int ranks = 1; ranks <= 33; ++ranks)
    for (const std::size_t count : {0, 1, 2, 3, 7, 64, 101}) {
      const auto held = simulate(halving_doubling_plan, ranks, count);
      ASSERT_EQ(held.size(), static_cast<std::size_t>(ranks)) << "stuck with " << ranks << " ranks, " << count << " elements";
      for (const Texts& texts : held)
        for (const auto& text : texts) ASSERT_EQ(text, bracket_text(0, ranks)) << ranks << " ranks, " << count << " elements";
    }
}

TEST(HalvingDoublingPlan, MovesTheFewestBytesWithPowersOfTwo) {
  std::size_t sent = 0;
  for (const Step& step : halving_doubling_plan(3, 8, 800)) sent += step.send.size();
  EXPECT_EQ(sent, 2u * 800 * 7 / 8);
}

}  // namespace cohort::collective
