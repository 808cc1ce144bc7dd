#include <gtest/gtest.h>

#include <cmath>

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

TEST(Zoom, BesideARotationIsOnePassOfBoth) {
  Scratch scratch;
  Rng rng(5);
  const auto turn = rng.uniform(-30, 30) * 3.14159265358979323846 / 180;
  const auto cosine = static_cast<float>(std::cos(turn)), sine = static_cast<float>(std::sin(turn));
  const auto back = static_cast<float>(1 / (1 + rng.uniform(-20, 20) / 100));
  std::vector<float> in(static_cast<std::size_t>(kTestShape.elements())), out(in.size());
  scale_pixels(test_set().sample(0, scratch).input, in.data(), kTestShape.elements(), {});
  warp(in.data(), out.data(), kTestShape, {cosine * back, sine * back, -sine * back, cosine * back});
  for (float& value : out) value *= 1.0F / 255;
  EXPECT_EQ(made("rotate(degrees=30), zoom(percent=20)", 5), out);
}

TEST(Zoom, MapsGoOneAfterTheOther) {
  const Affine quarter{0, 1, -1, 0}, wide{3, 0, 0, 1};
  EXPECT_EQ(quarter * quarter, (Affine{-1, 0, 0, -1}));
  EXPECT_EQ(quarter * wide, (Affine{0, 1, -3, 0}));  // what the turn gives is stretched along its x, which was the image's y
  EXPECT_EQ(quarter * Affine{}, quarter);
  const Affine aside{.x = 2, .y = 1};
  EXPECT_EQ(aside * quarter, (Affine{0, 1, -1, 0, 2, 1}));
  EXPECT_EQ(quarter * aside, (Affine{0, 1, -1, 0, 1, -2}));
}

TEST(Zoom, DiffersFromDrawToDraw) { EXPECT_NE(made("zoom(percent=30)", 3), made("zoom(percent=30)", 4)); }

}  // namespace cohort::data
