#include "cohort/base/registry.h"

#include <gmock/gmock.h>

#include <array>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

struct Row {
  std::string_view name;
  int value;
};
constexpr Row kRing{"ring", 1};
constexpr Row kTree{"tree", 2};
constexpr std::array<const Row*, 2> kRows{&kRing, &kTree};

TEST(Registry, FindsARowByName) {
  const std::span<const Row* const> rows = kRows;
  EXPECT_EQ(find_row(rows, "tree", "algorithm").value, 2);
  EXPECT_EQ(find_row_if_any(rows, "trees"), nullptr);
  EXPECT_THAT(row_names(rows), testing::ElementsAre("ring", "tree"));
}

TEST(Registry, AnUnknownNameNamesTheNearestAndAll) {
  const auto error = failure_of([] { find_row(std::span<const Row* const>(kRows), "rign", "all_reduce algorithm"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_EQ(error.what, "unknown all_reduce algorithm 'rign'; did you mean 'ring'? known: ring, tree");
}

}  // namespace
}  // namespace cohort
