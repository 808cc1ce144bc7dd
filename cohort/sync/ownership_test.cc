#include "cohort/sync/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/optim/measure.h"

namespace cohort::sync {
namespace {

using testing::ElementsAre;

TEST(Ownership, IsEvenWhereBlocksAllow) {
  const Range one[]{{0, 1024}};
  EXPECT_THAT(cut(one, 1024, 4), ElementsAre(0, 256, 512, 768, 1024));
  EXPECT_THAT(cut(one, 1024, 1), ElementsAre(0, 1024));
}

TEST(Ownership, OfATensorSmallerThanTheWorldLeavesSomeWithNothing) {
  const Range tiny[]{{0, 3}};
  EXPECT_THAT(cut(tiny, 16, 4), ElementsAre(0, 0, 0, 0, 16));
  const Range two[]{{0, 3}, {16, 20}};
  EXPECT_THAT(cut(two, 48, 2), ElementsAre(0, 16, 48));
}

TEST(Ownership, EdgesAreStartsOfTensorsOrWholeBlocksBehindOneAndNeverGoBack) {
  const std::vector<std::vector<Range>> layouts{
      {{0, 10000}}, {{0, 5}, {16, 700}, {720, 1}, {736, 4000}}, {{0, 255}, {256, 257}, {528, 513}}, {{0, 1}, {16, 1}, {32, 1}}};
  for (const auto& tensors : layouts)
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const std::size_t total = (tensors.back().last() + 15) / 16 * 16;
      const auto edges = cut(tensors, total, ranks);
      ASSERT_EQ(edges.size(), static_cast<std::size_t>(ranks) + 1);
      EXPECT_EQ(edges.front(), 0u);
      EXPECT_EQ(edges.back(), total);
      for (std::size_t r = 1; r < edges.size(); ++r) {
        EXPECT_GE(edges[r], edges[r - 1]);
        bool fits = edges[r] == total;
        for (const Range& t : tensors)
          fits = fits || (edges[r] >= t.first && edges[r] < t.last() && (edges[r] - t.first) % optim::kMeasureBlock == 0);
        EXPECT_TRUE(fits) << edges[r] << " of " << total << " for " << ranks;
      }
    }
}

TEST(Ownership, OfWholeTensorsIsLevelledOverTheBuckets) {
  std::vector<std::size_t> load(3);
  const Range first[]{{0, 96}, {96, 16}};
  EXPECT_THAT(cut_between(first, 112, load), ElementsAre(0, 0, 96, 112));
  EXPECT_THAT(load, ElementsAre(0, 96, 16));
  const Range second[]{{0, 32}, {32, 32}, {64, 32}};
  EXPECT_THAT(cut_between(second, 96, load), ElementsAre(0, 64, 64, 96)) << "the rank that has most gets nothing";
  EXPECT_THAT(load, ElementsAre(64, 96, 48));
  std::vector<std::size_t> alone(1);
  EXPECT_THAT(cut_between(second, 96, alone), ElementsAre(0, 96));
}

TEST(Ownership, OfWholeTensorsIsNeverFarFromEven) {
  std::vector<Range> tensors;
  std::size_t total = 0;
  for (std::size_t i = 0; i < 60; ++i) {
    tensors.push_back({total, 16 * (1 + i * 7 % 13)});
    total = tensors.back().last();
  }
  for (std::size_t ranks = 1; ranks <= 8; ++ranks) {
    std::vector<std::size_t> load(ranks);
    for (int bucket = 0; bucket < 5; ++bucket) {
      const auto edges = cut_between(tensors, total, load);
      ASSERT_EQ(edges.size(), ranks + 1);
      EXPECT_EQ(edges.front(), 0u);
      EXPECT_EQ(edges.back(), total);
      for (std::size_t r = 0; r < ranks; ++r) {
        EXPECT_LE(edges[r], edges[r + 1]);
        EXPECT_TRUE(edges[r] == total || std::ranges::count(tensors, edges[r], &Range::first) == 1);
      }
    }
    EXPECT_LE(*std::ranges::max_element(load), *std::ranges::min_element(load) + 13 * 16) << "a tensor at most";
  }
}

}  // namespace
}  // namespace cohort::sync
