#include <gtest/gtest.h>

#include <set>

#include "cohort/data/transform_testing.h"
#include "cohort/data/warp.h"

namespace cohort::data {
namespace {

Affine shifted(std::int64_t down, std::int64_t right) { return {.x = static_cast<float>(-right), .y = static_cast<float>(-down)}; }

}  // namespace

TEST(Shift, ByNothingIsTheIdentity) { EXPECT_EQ(made("shift(pixels=0)"), made("")); }

TEST(Shift, ConservesTheSumOfWhatStaysInside) {
  const ImageShape shape{1, 9, 9};
  std::vector<float> in(81), out(81);
  in[4 * 9 + 4] = 3;
  in[3 * 9 + 5] = 2;
  for (std::int64_t down = -3; down <= 3; ++down) {
    for (std::int64_t right = -3; right <= 3; ++right) {
      warp(in.data(), out.data(), shape, shifted(down, right));
      EXPECT_EQ(sum(out), 5);
      EXPECT_EQ(out[static_cast<std::size_t>((4 + down) * 9 + 4 + right)], 3);
    }
  }
}

TEST(Shift, ThereAndBackLeavesTheInnerPart) {
  const auto image = made("");
  std::vector<float> there(image.size()), back(image.size());
  warp(image.data(), there.data(), kTestShape, shifted(2, -3));
  warp(there.data(), back.data(), kTestShape, shifted(-2, 3));
  for (std::int64_t y = 0; y < 5; ++y)
    for (std::int64_t x = 3; x < 9; ++x) EXPECT_EQ(back[static_cast<std::size_t>(y * 9 + x)], image[static_cast<std::size_t>(y * 9 + x)]);
  EXPECT_EQ(back[0], 0);
}

TEST(Shift, BeyondTheImageLeavesBlack) {
  const auto image = made("");
  std::vector<float> out(image.size(), 1);
  for (const std::int64_t far : {-100, -9, 9, 100}) {
    warp(image.data(), out.data(), kTestShape, shifted(0, far));
    EXPECT_EQ(sum(out), 0);
    warp(image.data(), out.data(), kTestShape, shifted(far, 0));
    EXPECT_EQ(sum(out), 0);
  }
}

TEST(Shift, OfWholePixelsMirroredOrNotIsWhatTheFormulaGives) {
  const auto image = made("");
  std::vector<float> moved(image.size()), any(image.size());
  for (const float side : {1.0F, -1.0F})
    for (float down = -8; down <= 8; ++down)
      for (float right = -10; right <= 10; ++right) {
        const Affine map{.xx = side, .x = right, .y = down};
        ASSERT_TRUE(warp_whole(image.data(), moved.data(), kTestShape, map));
        warp_any(image.data(), any.data(), kTestShape, map);
        ASSERT_EQ(moved, any);
      }
  EXPECT_FALSE(warp_whole(image.data(), moved.data(), kTestShape, {.x = 0.5F}));
  EXPECT_FALSE(warp_whole(image.data(), moved.data(), kTestShape, {.yy = -1}));
}

TEST(Shift, ReachesEveryPlaceWithinItsPixels) {
  std::set<std::vector<float>> places;
  for (std::uint64_t draw = 0; draw < 500; ++draw) places.insert(made("shift(pixels=1)", draw));
  EXPECT_EQ(places.size(), 9u);
}

}  // namespace cohort::data
