#include "cohort/collective/plans/hosts.h"

#include <gtest/gtest.h>

#include "cohort/collective/plans/simulate.h"

namespace cohort::collective {
namespace {

// Sums inside hosts, then over hosts, written down.
std::string in_layers(const Hosts& hosts, int first, int last) {
  if (last - first > 1) {
    const int middle = first + static_cast<int>(bracket_split(static_cast<std::size_t>(last - first)));
    return "(" + in_layers(hosts, first, middle) + "+" + in_layers(hosts, middle, last) + ")";
  }
  const auto& members = hosts.members(first);
  return bracket_text(members.front(), members.back() + 1);
}

// Every way to cut n ranks into consecutive hosts.
void every_cut(int ranks, const std::function<void(const std::vector<int>&)>& visit) {
  for (unsigned cuts = 0; cuts < 1u << (ranks - 1); ++cuts) {
    std::vector<int> labels{0};
    for (int r = 1; r < ranks; ++r) labels.push_back(labels.back() + static_cast<int>(cuts >> (r - 1) & 1u));
    visit(labels);
  }
}

}  // namespace

TEST(Hosts, AreNestedExactlyWhenTheHierarchyGivesTheCanonicalBracket) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    every_cut(ranks, [&](const std::vector<int>& labels) {
      const Hosts hosts(labels);
      const bool same = in_layers(hosts, 0, hosts.count()) == bracket_text(0, ranks);
      EXPECT_EQ(hosts.nested(), same) << testing::PrintToString(labels);
    });
}

TEST(Hosts, OfScatteredRanksAreNotNested) { EXPECT_FALSE(Hosts({0, 1, 0, 1}).nested()); }

TEST(Hosts, CountMembersInTheOrderOfTheirFirst) {
  const Hosts hosts({7, 3, 7, 3, 7});
  EXPECT_EQ(hosts.count(), 2);
  EXPECT_EQ(hosts.members(0), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(hosts.of(3), 1);
  EXPECT_EQ(hosts.local_rank(3), 1);
  EXPECT_EQ(hosts.fewest(), 2);
  EXPECT_EQ(hosts.most(), 3);
  EXPECT_FALSE(hosts.even());
}

}  // namespace cohort::collective
