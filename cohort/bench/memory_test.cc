#include "cohort/bench/memory.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort::bench {
namespace {

TEST(Memory, AWorkersLinesComeBackAsRows) {
  const MemoryRow row{.stage = 3, .ranks = 4, .what = "gradients", .formula = 100, .measured = 104};
  const auto rows = parse_memory_lines(json_line(row) + "\n" + json_line(row) + "\n");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].stage, 3);
  EXPECT_EQ(rows[1].what, "gradients");
  EXPECT_NEAR(rows[1].off(), 0.04, 1e-9);
}

TEST(Memory, TheLineHasTheKeysThatScriptsRead) {
  EXPECT_EQ(json_line({.stage = 1, .ranks = 2, .what = "sum", .formula = 10, .measured = 11}),
            R"({"stage":1,"ranks":2,"class":"sum","formula_bytes":10,"measured_bytes":11})");
}

TEST(Memory, WhatIsNoLineIsNamed) {
  EXPECT_THAT(failure_of([] { parse_memory_lines("oops\n"); }).what, testing::HasSubstr("oops"));
}

TEST(Memory, TheTableSaysHowFarOff) {
  EXPECT_THAT(memory_table({{.stage = 0, .ranks = 2, .what = "parameters", .formula = 1 << 20, .measured = 1.02 * (1 << 20)}}),
              testing::HasSubstr("+2.0"));
}

}  // namespace
}  // namespace cohort::bench
