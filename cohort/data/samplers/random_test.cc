#include <gtest/gtest.h>

#include <set>

#include "cohort/data/sampler.h"

namespace cohort::data {

TEST(RandomSampler, DrawsFromTheWholeSetWithReplacement) {
  const auto drawn = sampler_named("random").order(10000, 1, 0);
  ASSERT_EQ(drawn.size(), 10000u);
  const std::set<std::int64_t> distinct(drawn.begin(), drawn.end());
  EXPECT_GE(*distinct.begin(), 0);
  EXPECT_LT(*distinct.rbegin(), 10000);
  EXPECT_NEAR(static_cast<double>(distinct.size()), 6321, 200);  // 1 - 1/e of them
}

TEST(RandomSampler, RepeatsForTheSameSeedAndEpochOnly) {
  const auto& row = sampler_named("random");
  EXPECT_EQ(row.order(50, 1, 4), row.order(50, 1, 4));
  EXPECT_NE(row.order(50, 1, 4), row.order(50, 1, 5));
  EXPECT_NE(row.order(50, 1, 4), row.order(50, 2, 4));
}

}  // namespace cohort::data
