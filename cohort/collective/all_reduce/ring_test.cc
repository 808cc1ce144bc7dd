#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/collective/plans/simulate.h"

namespace cohort::collective {

TEST(RingPlan, AddsEveryRankOnceAndGivesAllRanksTheSameOrder) {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t count : {0, 1, 5, 64, 101}) {
      const auto held = simulate(ring_plan, ranks, count);
      ASSERT_EQ(held.size(), static_cast<std::size_t>(ranks)) << "stuck with " << ranks << " ranks, " << count << " elements";
      for (const Texts& texts : held) {
        ASSERT_EQ(texts, held[0]);
        for (const auto& text : texts) ASSERT_EQ(std::count(text.begin(), text.end(), '+'), ranks - 1);
      }
    }
}

TEST(RingPlan, MovesTheFewestBytes) {
  std::size_t sent = 0;
  for (const Step& step : ring_plan(2, 5, 500)) sent += step.send.size();
  EXPECT_EQ(sent, 2u * 500 * 4 / 5);
}

}  // namespace cohort::collective
