#include "cohort/data/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/data/testing.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

Rows rows(std::string_view text) {
  Rows all;
  CsvReader reader(text, "t.csv");
  while (reader.next()) all.emplace_back(reader.fields().begin(), reader.fields().end());
  return all;
}

}  // namespace

TEST(Idx, ReadsSizesAndBody) {
  const std::string file = idx_file({2, 1, 3}, "abcdef");
  const IdxArray array = parse_idx(file, "f");
  EXPECT_THAT(array.sizes, ElementsAre(2, 1, 3));
  EXPECT_EQ(array.body, "abcdef");
}

TEST(Idx, RefusesEveryTruncationAndEveryTrailingByte) {
  const std::string file = idx_file({2, 3}, "abcdef");
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_EQ(failure_of([&] { parse_idx(file.substr(0, n), "f"); }).kind, Kind::corrupt) << n;
  EXPECT_THAT(failure_of([&] { parse_idx(file + "x", "train"); }).what,
              AllOf(HasSubstr("train"), HasSubstr("7 bytes after byte 12"), HasSubstr("promises 6")));
}

TEST(Idx, RefusesSizesBeyondMemoryAndOtherTypes) {
  EXPECT_THAT(failure_of([] { parse_idx(idx_file({~0U, ~0U, ~0U}, ""), "f"); }).what, HasSubstr("memory"));
  std::string floats = idx_file({1}, "a");
  floats[2] = 0x0d;
  EXPECT_THAT(failure_of([&] { parse_idx(floats, "f"); }).what, HasSubstr("00 00 0d 01"));
}

TEST(Cifar, CutsRecordsAndChecksLabels) {
  std::string file(2 * 3073, 'p');
  file[0] = 3;
  file[3073] = 9;
  const CifarRecords records = parse_cifar(file, "f");
  ASSERT_EQ(records.count(), 2u);
  EXPECT_EQ(records.label(1), 9);
  EXPECT_EQ(records.pixels(1).size(), 3072u);
  file[3073] = 10;
  EXPECT_THAT(failure_of([&] { parse_cifar(file, "f"); }).what, HasSubstr("label 10 at byte 3073"));
  EXPECT_THAT(failure_of([&] { parse_cifar(file.substr(1), "f"); }).what, HasSubstr("starts at byte 3073"));
}

TEST(Csv, ReadsFieldsQuotesAndLineEnds) {
  EXPECT_EQ(rows("a,b\n1,2\n"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows("a,b\r\n1,2"), (Rows{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(rows("\"a,\n\"\"x\"\"\",\"\"\r\n,"), (Rows{{"a,\n\"x\"", ""}, {"", ""}}));
  EXPECT_EQ(rows(""), Rows{});
}

TEST(Csv, SaysWhereARecordIsWrong) {
  EXPECT_THAT(failure_of([] { rows("a,b\n\"c\nd\",e\nf\n"); }).what, HasSubstr("t.csv, line 4, byte 12: 1 fields, expected 2"));
  EXPECT_THAT(failure_of([] { rows("a\n\"b"); }).what, HasSubstr("line 2, byte 2: a quoted field that never ends"));
  EXPECT_THAT(failure_of([] { rows("a\"b"); }).what, HasSubstr("byte 1: a quote inside"));
  EXPECT_THAT(failure_of([] { rows("\"a\"b"); }).what, HasSubstr("expected a comma"));
}

}  // namespace cohort::data
