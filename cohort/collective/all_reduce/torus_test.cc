#include <gtest/gtest.h>

#include "cohort/collective/plans/simulate.h"

namespace cohort::collective {
namespace {

Plan squarest_torus(int rank, int ranks, std::size_t count) { return torus_plan(rank, squarest(ranks), count); }
Plan narrow_torus(int rank, int ranks, std::size_t count) {
  return torus_plan(rank, {ranks / squarest(ranks).rows, squarest(ranks).rows}, count);
}

// Every rank once, in any order and bracket.
std::string sorted_ranks(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) {
      std::size_t used = 0;
      ranks.push_back(std::stoi(text.substr(i), &used));
      i += used - 1;
    }
  std::sort(ranks.begin(), ranks.end());
  return testing::PrintToString(ranks);
}

}  // namespace

TEST(TorusPlan, AddsEveryRankOnceOnAllRanksForAnyRankCountAndSize) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    for (auto* const plan_of : {squarest_torus, narrow_torus})
      for (const std::size_t count : {0, 1, 2, 7, 64, 101}) {
        const auto held = simulate(plan_of, ranks, count);
        ASSERT_EQ(held.size(), static_cast<std::size_t>(ranks)) << "stuck with " << ranks << " ranks, " << count << " elements";
        for (const Texts& texts : held) {
          ASSERT_EQ(texts, held[0]) << "ranks differ";
          for (const auto& text : texts) ASSERT_EQ(sorted_ranks(text), testing::PrintToString(all));
        }
      }
  }
}

TEST(TorusPlan, HasFewerRoundsThanARing) {
  EXPECT_EQ(torus_plan(0, squarest(16), 100).size(), 2u * 2u * (4 + 4 - 2));  // two halves, which run side by side
  EXPECT_EQ(ring_plan(0, 16, 100).size(), 2u * 15u);
}

}  // namespace cohort::collective
