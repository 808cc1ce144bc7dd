#include <gtest/gtest.h>

#include <set>

#include "cohort/data/transform_testing.h"

namespace cohort::data {

TEST(Crop, WithoutABorderIsTheIdentity) { EXPECT_EQ(made("crop(pad=0)"), made("")); }

TEST(Crop, CutsEveryWindowOfTheBorderedImage) {
  std::set<std::vector<float>> windows, expected;
  for (std::uint64_t draw = 0; draw < 1000; ++draw) windows.insert(made("crop(pad=2)", draw));
  const auto image = made("");
  std::vector<float> moved(image.size());
  for (std::int64_t down = -2; down <= 2; ++down) {
    for (std::int64_t right = -2; right <= 2; ++right) {
      warp(image.data(), moved.data(), kTestShape, {.x = static_cast<float>(right), .y = static_cast<float>(down)});
      expected.insert(moved);
    }
  }
  EXPECT_EQ(windows, expected);
}

}  // namespace cohort::data
