#include "cohort/base/open_table.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

struct Row {
  std::string_view name;
};

TEST(OpenTable, TakesMoreRowsAndLeavesSpansThatWereHandedOut) {
  static const Row one{"one"}, two{"two"}, three{"three"};
  static const Row* const built_in[]{&one};
  OpenTable<Row> table(built_in);
  const auto before = table.rows();
  table.add(two, "row", "libx.so");
  table.add(three, "row", "libx.so");
  EXPECT_EQ(before.size(), 1u);
  EXPECT_EQ(before[0], &one);
  EXPECT_EQ(row_names(table.rows()), (std::vector<std::string_view>{"one", "two", "three"}));
}

TEST(OpenTable, RefusesANameTwiceAndSaysWhoseItIs) {
  static const Row one{"one"}, again{"one"};
  static const Row* const built_in[]{&one};
  OpenTable<Row> table(built_in);
  const Error error = failure_of([&] { table.add(again, "loss", "plugin libx.so"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_EQ(error.what, "plugin libx.so: there is a loss 'one' already; give this one another name");
  EXPECT_EQ(table.rows().size(), 1u);
}

}  // namespace
}  // namespace cohort
