#include "cohort/collective/operations/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/collective/plans/hosts.h"

namespace cohort::collective {
namespace {

Shape shape_of(const std::vector<int>& labels, std::size_t bytes) {
  const Hosts hosts(labels);
  return {.bytes = bytes,
          .ranks = static_cast<int>(labels.size()),
          .cores = 2,
          .shared = hosts.count() == 1,
          .hosts = hosts.count(),
          .fewest = hosts.fewest(),
          .most = hosts.most(),
          .nested = hosts.nested()};
}

constexpr std::size_t kLarge = 25'000'000;

}  // namespace

TEST(Selector, TakesHierarchicalForLargeDataOnHostsWithSeveralRanks) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}})
    EXPECT_EQ(choose(shape_of(hosts, kLarge), {}, true).name, "hierarchical");
}

TEST(Selector, TakesNoHierarchyOnOneHostOrWithOneRankPerHost) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 1}, {0, 1, 2, 3}, {0, 0, 0, 0}})
    EXPECT_THAT(std::string(choose(shape_of(hosts, kLarge), {}, false).name), ::testing::Not(::testing::StartsWith("hierarchical")));
}

TEST(Selector, LeavesOutAHierarchyThatWouldChangeTheBits) {
  const Shape odd = shape_of({0, 0, 0, 1, 1, 1}, kLarge);
  EXPECT_NE(choose(odd, {}, true).name, "hierarchical");
  EXPECT_THAT(std::string(choose(odd, {}, false).name), ::testing::StartsWith("hierarchical"));
}

TEST(Selector, CountsOnlyTheRanksOfAHostAgainstItsCores) {
  EXPECT_EQ(crowding(shape_of({0, 0, 1, 1, 2, 2, 3, 3}, 1)), 1.0);
  EXPECT_EQ(crowding(shape_of({0, 0, 0, 0}, 1)), 2.0);
}

TEST(Selector, SaysWhatAnUnusableRowNeeds) {
  const std::string text = explain(shape_of({0, 1}, kLarge), {}, true);
  EXPECT_THAT(text, ::testing::ContainsRegex("zero_copy [^\n]*needs memory that all ranks share"));
  EXPECT_THAT(text, ::testing::ContainsRegex("hierarchical [^\n]*needs several hosts with several ranks"));
}

}  // namespace cohort::collective
