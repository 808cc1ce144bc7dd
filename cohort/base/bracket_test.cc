#include "cohort/base/bracket.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort {
namespace {

std::string written(std::size_t low, std::size_t high) {
  if (high - low == 1) return std::to_string(low);
  const std::size_t middle = low + bracket_split(high - low);
  return "(" + written(low, middle) + "+" + written(middle, high) + ")";
}

TEST(Bracket, IsTheOneWrittenDownForOneToNineRanks) {
  EXPECT_EQ(written(0, 1), "0");
  EXPECT_EQ(written(0, 2), "(0+1)");
  EXPECT_EQ(written(0, 3), "((0+1)+2)");
  EXPECT_EQ(written(0, 4), "((0+1)+(2+3))");
  EXPECT_EQ(written(0, 5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(written(0, 6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(written(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(written(0, 8), "(((0+1)+(2+3))+((4+5)+(6+7)))");
  EXPECT_EQ(written(0, 9), "((((0+1)+(2+3))+((4+5)+(6+7)))+8)");
}

TEST(Bracket, SplitsAtTheLargestPowerOfTwoBelow) {
  static_assert(bracket_split(2) == 1 && bracket_split(3) == 2 && bracket_split(4) == 2 && bracket_split(5) == 4 &&
                bracket_split(1000) == 512 && bracket_split(1024) == 512);
  EXPECT_EQ(bracket_split((std::size_t{1} << 63) + 1), std::size_t{1} << 63);
}

}  // namespace
}  // namespace cohort
