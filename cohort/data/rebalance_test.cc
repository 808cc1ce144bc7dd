#include "cohort/data/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/base/failure_of.h"
#include "cohort/data/random.h"
#include "cohort/data/sampler.h"

namespace cohort::data {
namespace {

using Indices = std::vector<std::int64_t>;

// What one step of this many ranks takes, in rank order.
Indices one_step(const Share& share, const Progress& progress, int ranks) {
  Indices all;
  for (int rank = 0; rank < ranks; ++rank) {
    const RebalancedShare rebalanced = rebalance(share, progress, rank, ranks);
    const EpochPlan p = plan(rebalanced.share, rebalanced.progress.epoch);
    const auto mine = p.mine(0);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

}  // namespace

TEST(Rebalance, EverySampleComesOncePerEpochWhateverTheRanksDo) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const Share share{.samples = rng.between(1, 200), .batch = rng.between(1, 9), .seed = seed};
    Progress progress;
    Indices taken;
    for (std::int64_t epoch = 0; epoch < 3;) {
      const int ranks = static_cast<int>(rng.between(1, 7));  // a new membership at every step
      const Indices step = one_step(share, progress, ranks);
      if (rng.uniform() < 0.2) continue;  // the step was not committed: it has taken nothing
      taken.insert(taken.end(), step.begin(), step.end());
      Share now = share;
      now.ranks = ranks;
      progress = after_step(now, progress);
      if (progress.epoch == epoch) continue;
      std::sort(taken.begin(), taken.end());
      ASSERT_EQ(taken, counting_order(share.samples)) << "seed " << seed << ", epoch " << epoch;
      taken.clear();
      epoch = progress.epoch;
    }
  }
}

TEST(Rebalance, WithoutAChangeItIsThePlanOfTheWholeEpoch) {
  const Share share{.samples = 101, .ranks = 3, .rank = 1, .batch = 4, .seed = 9};
  const EpochPlan whole = plan(share, 0);
  Progress progress;
  for (std::int64_t step = 0; step < whole.steps(); ++step) {
    ASSERT_EQ(progress, (Progress{0, whole.taken(step)}));
    const RebalancedShare rebalanced = rebalance(share, progress, 1, 3);
    const EpochPlan rest = plan(rebalanced.share, 0);
    const auto mine = rest.mine(0), expected = whole.mine(step);
    ASSERT_TRUE(std::ranges::equal(mine, expected)) << step;
    progress = after_step(share, progress);
  }
  EXPECT_EQ(progress, (Progress{1, 0}));
}

TEST(Rebalance, DropLastEndsAnEpochThatTheNewRanksCannotFill) {
  const Share share{.samples = 20, .batch = 4, .drop_last = true};
  EXPECT_EQ(rebalance(share, {0, 16}, 0, 1).progress, (Progress{0, 16}));
  EXPECT_EQ(rebalance(share, {0, 16}, 0, 2).progress, (Progress{1, 0})) << "4 samples fill no batch of 2 x 4";
}

TEST(Rebalance, AnEpochThatIsOverIsFollowedByTheNext) {
  const Share share{.samples = 20, .batch = 4};
  EXPECT_EQ(rebalance(share, {3, 20}, 0, 2).progress, (Progress{4, 0}));
  EXPECT_EQ(failure_of([&] { rebalance(share, {0, 21}, 0, 1); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([&] { rebalance(share, {0, 3}, 2, 2); }).kind, Kind::usage);
}

TEST(Rebalance, AHugeBatchIsAllThatIsLeft) {
  const Share share{.samples = 20, .ranks = 3, .batch = std::int64_t{1} << 62};
  EXPECT_EQ(after_step(share, {0, 7}), (Progress{1, 0}));
}

}  // namespace cohort::data
