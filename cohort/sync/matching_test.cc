#include "cohort/sync/matching.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace cohort::sync {
namespace {

TEST(Matching, EveryPairIsMutualAndOneAtMostIsAlone) {
  for (const int ranks : {1, 2, 3, 4, 7, 16})
    for (std::int64_t step = 1; step <= 10000; ++step) {
      const auto partner = matching(5, step, ranks);
      int alone = 0;
      for (int r = 0; r < ranks; ++r) {
        ASSERT_EQ(partner[static_cast<std::size_t>(partner[static_cast<std::size_t>(r)])], r);
        alone += partner[static_cast<std::size_t>(r)] == r ? 1 : 0;
      }
      ASSERT_EQ(alone, ranks % 2);
    }
}

TEST(Matching, PartnersAreEquallyLikelyAndFollowSeedAndStep) {
  std::map<int, int> met;
  for (std::int64_t step = 1; step <= 35000; ++step) ++met[matching(9, step, 8)[3]];
  ASSERT_EQ(met.size(), 7U);
  for (const auto& [rank, times] : met) EXPECT_NEAR(times, 5000, 6 * 66) << "six standard deviations, rank " << rank;
  EXPECT_EQ(matching(9, 4, 8), matching(9, 4, 8));
  std::set<std::vector<int>> by_seed;
  for (std::uint64_t seed = 0; seed < 20; ++seed) by_seed.insert(matching(seed, 4, 8));
  EXPECT_GT(by_seed.size(), 10U);
}

}  // namespace
}  // namespace cohort::sync
