#include "cohort/sync/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cohort::sync
