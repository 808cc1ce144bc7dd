#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cohort/data/transform_testing.h"
#include "cohort/data/warp.h"

namespace cohort::data {
namespace {

// Bilinear as one would write it down: what warp() must equal.
float plain(const std::vector<float>& in, const ImageShape& shape, const Affine& m, std::int64_t c, std::int64_t y, std::int64_t x) {
  const double cx = static_cast<double>(shape.width - 1) / 2, cy = static_cast<double>(shape.height - 1) / 2;
  const double dx = static_cast<double>(x) - cx, dy = static_cast<double>(y) - cy;
  const double sx = cx + m.xx * dx + m.xy * dy + m.x, sy = cy + m.yx * dx + m.yy * dy + m.y;
  double value = 0;
  for (std::int64_t row = 0; row < shape.height; ++row)
    for (std::int64_t column = 0; column < shape.width; ++column) {
      const double weight =
          std::max(0.0, 1 - std::abs(sx - static_cast<double>(column))) * std::max(0.0, 1 - std::abs(sy - static_cast<double>(row)));
      value += weight * in[static_cast<std::size_t>((c * shape.height + row) * shape.width + column)];
    }
  return static_cast<float>(value);
}

}  // namespace

TEST(Warp, EqualsThePlainFormulaForAnyMap) {
  Rng rng(11);
  for (const ImageShape shape : {kTestShape, ImageShape{1, 1, 1}, ImageShape{1, 3, 70}}) {
    std::vector<float> in(static_cast<std::size_t>(shape.elements())), out(in.size());
    for (float& value : in) value = static_cast<float>(rng.uniform());
    for (int trial = 0; trial < 20; ++trial) {
      const auto draw = [&] { return static_cast<float>(rng.uniform(-2, 2)); };
      const Affine m{draw(), draw(), draw(), draw(), draw(), draw()};
      warp(in.data(), out.data(), shape, m);
      for (std::int64_t c = 0, i = 0; c < shape.channels; ++c)
        for (std::int64_t y = 0; y < shape.height; ++y)
          for (std::int64_t x = 0; x < shape.width; ++x, ++i)
            ASSERT_NEAR(out[static_cast<std::size_t>(i)], plain(in, shape, m, c, y, x), 1e-4);
    }
  }
}

TEST(Rotate, ByNothingIsTheIdentity) {
  EXPECT_EQ(made("rotate(degrees=0)"), made(""));
  const auto image = made("");
  std::vector<float> out(image.size());
  warp(image.data(), out.data(), kTestShape, {});  // the loop itself, not its short cut
  EXPECT_EQ(out, image);
}

TEST(Rotate, AQuarterTurnMovesEveryPixelExactly) {
  const ImageShape square{1, 5, 5};
  std::vector<float> in(25), out(25);
  for (std::size_t i = 0; i < 25; ++i) in[i] = static_cast<float>(i);
  warp(in.data(), out.data(), square, {0, 1, -1, 0});
  for (std::size_t y = 0; y < 5; ++y)
    for (std::size_t x = 0; x < 5; ++x) EXPECT_EQ(out[y * 5 + x], in[(4 - x) * 5 + y]);
}

TEST(Rotate, KeepsTheMiddleOfAFlatImageAndTheRange) {
  const ImageShape shape{1, 28, 28};
  const std::vector<float> flat(784, 2);
  std::vector<float> out(784);
  warp(flat.data(), out.data(), shape, {0.96592583F, 0.25881905F, -0.25881905F, 0.96592583F});  // 15 degrees
  EXPECT_NEAR(out[14 * 28 + 14], 2, 1e-5);
  for (const float value : out) EXPECT_TRUE(value >= 0 && value <= 2.00001F);
  EXPECT_LT(out[0], 0.5F);  // the corner came from outside
}

TEST(Rotate, TurnsByAnotherAngleForAnotherDraw) {
  EXPECT_NE(made("rotate(degrees=30)", 1), made("rotate(degrees=30)", 2));
  EXPECT_EQ(made("rotate(degrees=30)", 1), made("rotate(degrees=30)", 1));
}

}  // namespace cohort::data
