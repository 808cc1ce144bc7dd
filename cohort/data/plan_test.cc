#include "cohort/data/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/base/failure_of.h"
#include "cohort/data/random.h"
#include "cohort/data/sampler.h"

namespace cohort::data {
namespace {

using Indices = std::vector<std::int64_t>;

// What all ranks together take, step by step, in rank order.
std::vector<Indices> steps_of_all(Share share, std::int64_t epoch) {
  std::vector<Indices> steps;
  for (share.rank = 0; share.rank < share.ranks; ++share.rank) {
    const EpochPlan p = plan(share, epoch);
    steps.resize(static_cast<std::size_t>(p.steps()));
    for (std::int64_t s = 0; s < p.steps(); ++s) {
      const auto mine = p.mine(s);
      auto& all = steps[static_cast<std::size_t>(s)];
      all.insert(all.end(), mine.begin(), mine.end());
    }
  }
  return steps;
}

}  // namespace

TEST(Plan, ManyRanksTakeStepByStepWhatOneRankWouldTake) {
  for (const Sampler* sampler : sampler_rows()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const std::int64_t batch : {1, 3, 8}) {
        for (const std::int64_t samples : {1, 5, 72, 101}) {
          Share many{.samples = samples, .ranks = ranks, .batch = batch, .seed = 3, .sampler = std::string(sampler->name)};
          Share one = many;
          one.ranks = 1;
          one.batch = ranks * batch;
          ASSERT_EQ(steps_of_all(many, 2), steps_of_all(one, 2)) << ranks << " ranks, batch " << batch << ", " << samples << " samples";
        }
      }
    }
  }
}

TEST(Plan, TakesEverySampleOncePerEpochOverAllRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Indices all;
    for (const Indices& step : steps_of_all({.samples = 101, .ranks = ranks, .batch = 4, .seed = 1}, 7))
      all.insert(all.end(), step.begin(), step.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, counting_order(101));
  }
}

TEST(Plan, SaysHowManySamplesAStepHasOverAllRanks) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const Share share{.samples = 50, .ranks = ranks, .batch = 4};
    const auto steps = steps_of_all(share, 0);
    const EpochPlan p = plan(share, 0);
    for (std::int64_t s = 0; s < p.steps(); ++s)
      EXPECT_EQ(p.total(s), static_cast<std::int64_t>(steps[static_cast<std::size_t>(s)].size()));
  }
}

TEST(Plan, SpreadsAShortLastStepEvenlyAndMayLeaveARankWithoutSamples) {
  Share share{.samples = 10, .ranks = 4, .batch = 2};
  std::vector<std::size_t> counts;
  for (share.rank = 0; share.rank < 4; ++share.rank) {
    const EpochPlan p = plan(share, 0);
    ASSERT_EQ(p.steps(), 2);
    counts.push_back(p.mine(1).size());
  }
  EXPECT_EQ(counts, (std::vector<std::size_t>{1, 1, 0, 0}));
}

TEST(Plan, DropLastKeepsFullBatchesOnly) {
  const EpochPlan p = plan({.samples = 10, .ranks = 2, .batch = 2, .drop_last = true}, 0);
  EXPECT_EQ(p.steps(), 2);
  EXPECT_EQ(p.total(1), 4);
}

TEST(Plan, GoesOnWithOtherRanksAndBatchesWithinAnEpoch) {
  const Share before{.samples = 100, .ranks = 4, .batch = 5, .seed = 9};
  Share after{.samples = 100, .ranks = 3, .batch = 7, .seed = 9, .first = plan(before, 1).taken(2)};
  Indices all;
  auto first = steps_of_all(before, 1);
  first.resize(2);
  for (const auto& part : {first, steps_of_all(after, 1)})
    for (const Indices& step : part) all.insert(all.end(), step.begin(), step.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, counting_order(100));
}

TEST(Plan, TakesABatchLargerThanTheSetAsAllOfIt) {
  const EpochPlan p = plan({.samples = 3, .ranks = 2, .batch = std::int64_t{1} << 62}, 0);
  EXPECT_EQ(p.steps(), 1);
  EXPECT_EQ(p.total(0), 3);
}

TEST(Plan, RefusesSharesThatCannotBe) {
  EXPECT_EQ(failure_of([] { plan({.samples = 0}, 0); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { plan({.samples = 9, .ranks = 2, .rank = 2}, 0); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { plan({.samples = 9, .batch = 0}, 0); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([] { plan({.samples = 9, .batch = 10, .drop_last = true}, 0); }).what, testing::HasSubstr("smaller batch"));
  EXPECT_THAT(failure_of([] { plan({.samples = 9, .sampler = "partiton"}, 0); }).what, testing::HasSubstr("did you mean 'partition'"));
}

TEST(Rng, KeepsItsNumbersOverVersionsAndPlatforms) {
  Rng rng(42);
  EXPECT_EQ(rng.next(), 13934464819154148243ULL);
  EXPECT_EQ(rng.below(1000), 446u);
}

TEST(Rng, StaysInsideItsBounds) {
  Rng rng(1, 2, 3);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t n = rng.between(-2, 2);
    ASSERT_TRUE(n >= -2 && n <= 2);
    low |= n == -2;
    high |= n == 2;
    const double u = rng.uniform(3, 4);
    ASSERT_TRUE(u >= 3 && u < 4);
  }
  EXPECT_TRUE(low && high);
}

}  // namespace cohort::data
