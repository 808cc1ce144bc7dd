#include "cohort/bench/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/bench/chart.h"
#include "cohort/bench/table.h"
#include "cohort/bench/testing.h"

namespace cohort::bench {
namespace {

using testing::HasSubstr;

TEST(Results, ReportTheMedianOfRoundsWithTheirSpread) {
  Row row;
  summarize(row, {{1024, 5, 4, 6, 10, 77}, {1024, 9, 8, 10, 11, 77}, {1024, 6, 5, 7, 12, 77}});
  EXPECT_DOUBLE_EQ(row.median_us, 6);
  EXPECT_DOUBLE_EQ(row.low_us, 5);
  EXPECT_DOUBLE_EQ(row.high_us, 9);
  EXPECT_EQ(row.repeats, 33);
  EXPECT_EQ(row.rounds, 3);
  EXPECT_EQ(row.checksum, 77u);
}

TEST(Results, TheLimitOfAnInPlaceAllReduceIsAnUpdateOfEverything) {
  EXPECT_DOUBLE_EQ(bytes_that_must_move("all_reduce", 4, 100), 800);
  EXPECT_DOUBLE_EQ(*limit_us("all_reduce", 4, 100, 12.5), 12.5);
  EXPECT_DOUBLE_EQ(*limit_us("broadcast", 4, 100, 12.5), 12.5 / 2);  // PN of 2PN
  EXPECT_EQ(limit_us("barrier", 4, 0, 12.5), std::nullopt);
  EXPECT_EQ(limit_us("all_reduce", 4, 100, 0), std::nullopt);
  for (const char* collective : kBenchCollectives) EXPECT_FALSE(bytes_that_must_move_formula(collective).empty()) << collective;
}

TEST(Results, LinesAreFoundAmongOtherText) {
  const auto lines = parse_lines(
      "warning: something\n"
      R"({"bytes":4,"median_us":0.5,"low_us":0.4,"high_us":0.6,"repeats":9,"checksum":6,"update_us":0.25,"algorithm":"ring"})"
      "\nbye\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].bytes, 4u);
  EXPECT_DOUBLE_EQ(lines[0].limit_us, 0.25);
  EXPECT_EQ(lines[0].algorithm, "ring");
  EXPECT_THAT(message_of([] { parse_lines("{\"median_us\": 1"); }), HasSubstr("an implementation printed"));
}

TEST(Results, ExpectationsHoldForTheirMachineAndSizesOnly) {
  Row row{"openmpi", "all_reduce", "default", "f32", "sum"};
  row.ranks = 4, row.bytes = 100_MiB;
  const Machine known{"AMD EPYC 9B14", 2};
  EXPECT_DOUBLE_EQ(*expected_us(known, row), 173'000);
  EXPECT_EQ(expected_us({"AMD EPYC 9B14", 64}, row), std::nullopt);
  EXPECT_EQ(expected_us({"Some Other", 2}, row), std::nullopt);
  row.ranks = 3;
  EXPECT_EQ(expected_us(known, row), std::nullopt);
  row.ranks = 2, row.bytes = 2_MiB;
  EXPECT_EQ(expected_us(known, row), std::nullopt);
}

TEST(Table, JsonHasTheKeysThatMachinesRead) {
  Row row{"cohort", "all_reduce", "zero_copy", "f32", "sum", "allocate", "auto"};
  row.ranks = 2, row.bytes = 4, row.median_us = 0.5, row.limit_share = 0.9;
  const auto json = nlohmann::json::parse(json_line(row));
  for (const char* key :
       {"who", "collective", "algorithm", "ranks", "bytes", "dtype", "median_us", "low_us", "high_us", "repeats", "limit_share"})
    EXPECT_TRUE(json.contains(key)) << key;
  row.limit_share.reset();
  EXPECT_TRUE(nlohmann::json::parse(json_line(row)).at("limit_share").is_null());
}

TEST(Table, PeopleSeeRatiosNotesAndVoidRows) {
  Row ours{"cohort", "all_reduce", "zero_copy", "f32", "sum", "allocate", "auto"}, theirs{"openmpi", "all_reduce", "default", "f32", "sum"};
  ours.bytes = theirs.bytes = 1_MiB;
  theirs.ratio = 3.5, theirs.spoiled = true;
  const auto text = table({"all_reduce", 2, {ours, theirs}, {"gloo does not take part: no torch"}, {"VOID: why"}}, {});
  for (const char* part : {"1 MiB", "3.50x", "void", "gloo does not take part", "VOID: why"}) EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(legend("all_reduce"), HasSubstr("2PN"));
}

TEST(BandwidthChart, DrawsEveryLineAndPoint) {
  const auto svg = bandwidth_chart("a < b", {{"cohort", {{1024, 1}, {1048576, 10}}}, {"Open MPI", {{1024, 0.5}, {1048576, 2}}}});
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("Open MPI"));
  std::size_t dots = 0;
  for (std::size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) ++dots;
  EXPECT_EQ(dots, 4u);
  EXPECT_THAT(bandwidth_chart("empty", {}), HasSubstr("nothing was measured"));
}

}  // namespace
}  // namespace cohort::bench
