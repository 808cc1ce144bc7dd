#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/data/sampler.h"

namespace cohort::data {

TEST(PartitionSampler, VisitsEverySampleOnce) {
  for (const std::int64_t samples : {1, 2, 7, 1000}) {
    auto order = sampler_named("partition").order(samples, 5, 3);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, counting_order(samples));
  }
}

TEST(PartitionSampler, GivesEveryEpochAndSeedItsOwnOrder) {
  const auto& row = sampler_named("partition");
  EXPECT_EQ(row.order(100, 1, 0), row.order(100, 1, 0));
  EXPECT_NE(row.order(100, 1, 0), row.order(100, 1, 1));
  EXPECT_NE(row.order(100, 1, 0), row.order(100, 2, 0));
  EXPECT_NE(row.order(100, 1, 2), row.order(100, 2, 1));
}

TEST(PartitionSampler, KeepsItsOrderOverVersionsAndPlatforms) {
  EXPECT_EQ(sampler_named("partition").order(10, 42, 0), (std::vector<std::int64_t>{3, 0, 8, 6, 9, 2, 5, 1, 4, 7}));
}

TEST(PartitionSampler, PutsEverySampleEverywhereEquallyOften) {
  std::vector<int> first(8);
  for (int epoch = 0; epoch < 8000; ++epoch) ++first[static_cast<std::size_t>(sampler_named("partition").order(8, 7, epoch)[0])];
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

}  // namespace cohort::data
