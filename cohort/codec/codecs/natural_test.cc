#include <gmock/gmock.h>

#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Natural, TakesNineBitsAnElement) {
  const Layout layout = layout_of({256, 257, 9});
  EXPECT_EQ(make("natural")->bound(layout, layout.all()), (256 + 32) + (256 + 32 + 1 + 1) + (9 + 2));
}

TEST(Natural, KeepsPowersOfTwoAndZeroAsTheyAre) {
  const Layout layout = layout_of({255});
  std::vector<float> values(layout.count);
  for (int e = -126; e <= 127; ++e) values[static_cast<std::size_t>(e + 126)] = std::ldexp(e % 2 == 0 ? 1.0F : -1.0F, e);
  values[254] = -0.0F;
  for (std::uint64_t step = 0; step < 10; ++step) EXPECT_TRUE(same_bits(sent(*make("natural"), layout, values, Random(1, step)), values));
}

TEST(Natural, SendsOneOfTheTwoPowersNextToAnElementWithTheRightMean) {
  const Layout layout = layout_of({256});
  std::vector<float> values(layout.count, -1.25F);
  values[1] = 0x1.8p-127F;  // below the smallest power of fp32 without zeros in front: 0 or 2^-126
  double sum = 0, tiny = 0;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const auto c = sent(*make("natural"), layout, values, Random(1, step));
    EXPECT_TRUE(c[1] == 0 || c[1] == 0x1p-126F);
    tiny += c[1] == 0 ? 0 : 1;
    for (std::size_t i = 2; i < 256; ++i) {
      EXPECT_TRUE(c[i] == -1 || c[i] == -2);
      sum += static_cast<double>(c[i]);
    }
  }
  EXPECT_NEAR(sum / (200 * 254), -1.25, 0.01);  // five standard errors
  EXPECT_NEAR(tiny / 200, 0.75, 0.16);
}

TEST(Natural, HasAVarianceOfAnEighthAtMost) {
  const Layout layout = layout_of({1000});
  auto values = noise(layout, 6);
  double squares = 0, lost = 0;
  for (float& v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  for (std::uint64_t draw = 0; draw < 100; ++draw) {
    const auto c = sent(*make("natural"), layout, values, Random(2, draw));
    for (std::size_t i = 0; i < c.size(); ++i) lost += std::pow(static_cast<double>(c[i]) - static_cast<double>(values[i]), 2) / 100;
  }
  EXPECT_LE(lost, squares / 8);
  EXPECT_GE(lost, squares / 32);  // 1/16 or so, of noise
}

TEST(Natural, OfTheLargestNumbersMayBeInfinite) {
  const Layout layout = layout_of({256});
  const std::vector<float> values(layout.count, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isinf(sent(*make("natural"), layout, values)[0]));
}

}  // namespace
}  // namespace cohort::codec
