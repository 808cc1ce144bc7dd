#include <gtest/gtest.h>

#include "cohort/data/transform_testing.h"

namespace cohort::data {

TEST(Zoom, ByNothingIsTheIdentity) { EXPECT_EQ(made("zoom(percent=0)"), made("")); }

TEST(Zoom, DoublingSpreadsAPixelOverFourTimesTheArea) {
  const ImageShape shape{1, 21, 21};
  std::vector<float> in(441), out(441);
  in[10 * 21 + 10] = 1;
  warp(in.data(), out.data(), shape, {0.5F, 0, 0, 0.5F});
  EXPECT_EQ(out[10 * 21 + 10], 1);
  EXPECT_NEAR(sum(out), 4, 1e-5);
}

TEST(Zoom, ShrinkingLeavesABlackBorder) {
  const ImageShape shape{1, 20, 20};
  const std::vector<float> flat(400, 1);
  std::vector<float> out(400);
  warp(flat.data(), out.data(), shape, {2, 0, 0, 2});
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[10 * 20 + 10], 1);
  EXPECT_NEAR(sum(out), 100, 12);
}

TEST(Zoom, DiffersFromDrawToDraw) { EXPECT_NE(made("zoom(percent=30)", 3), made("zoom(percent=30)", 4)); }

}  // namespace cohort::data
