#include <gtest/gtest.h>

#include <algorithm>

#include "cohort/data/transform_testing.h"

namespace cohort::data {

TEST(Flip, TwiceIsTheIdentity) { EXPECT_EQ(made("flip(chance=1), flip(chance=1)"), made("")); }

TEST(Flip, ReversesEveryRow) {
  auto image = made("flip(chance=1)");
  EXPECT_NE(image, made(""));
  for (auto row = image.begin(); row != image.end(); row += kTestShape.width) std::reverse(row, row + kTestShape.width);
  EXPECT_EQ(image, made(""));
}

TEST(Flip, HappensAsOftenAsAsked) {
  int flipped = 0;
  for (std::uint64_t draw = 0; draw < 1000; ++draw) flipped += made("flip", draw) != made("") ? 1 : 0;
  EXPECT_NEAR(flipped, 500, 80);
  for (std::uint64_t draw = 0; draw < 20; ++draw) EXPECT_EQ(made("flip(chance=0)", draw), made(""));
}

}  // namespace cohort::data
