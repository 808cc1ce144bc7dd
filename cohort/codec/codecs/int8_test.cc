#include <gmock/gmock.h>

#include <bit>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Int8, TakesAByteAnElementAndOneForEvery256) {
  const auto codec = make("int8");
  EXPECT_EQ(codec->bound(layout_of({256}), {0, 256}), 257u);
  const Layout layout = layout_of({1, 257, 1000});
  EXPECT_EQ(codec->bound(layout, layout.all()), 2 + 259 + 1004);
}

TEST(Int8, TakesTheSmallestPowerOfTwoThatHoldsTheLargestElement) {
  const auto codec = make("int8");
  const Layout layout = layout_of({16});
  for (const auto& [largest, scale] :
       {std::pair{127.0F, 1.0F}, {127.5F, 2.0F}, {63.5F, 0.5F}, {64.0F, 1.0F}, {-127.0F, 1.0F}, {1e-3F, 0x1p-16F}}) {
    std::vector<float> values(16);
    values[3] = largest;
    EXPECT_EQ(encoded(*codec, layout, values)[0], static_cast<std::byte>(127 + std::ilogb(scale))) << largest;
  }
}

TEST(Int8, IsOffByHalfAScaleAtMost) {
  const auto codec = make("int8");
  const Layout layout = layout_of({256});
  std::mt19937 random(2);
  for (int exponent = -125; exponent <= 127; exponent += 7) {
    std::vector<float> values(256);
    for (float& v : values) v = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), exponent);
    float largest = 0;
    for (const float v : values) largest = std::max(largest, std::abs(v));
    const auto back = sent(*codec, layout, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_LE(std::abs(static_cast<double>(values[i]) - static_cast<double>(back[i])),
                std::max(static_cast<double>(largest) / 127, 0x1p-127));
  }
}

TEST(Int8, KeepsWholeNumbersUpTo127AsTheyAre) {
  const auto codec = make("int8");
  const Layout layout = layout_of({255});
  std::vector<float> values(layout.count);
  for (int i = -127; i <= 127; ++i) values[static_cast<std::size_t>(i + 127)] = static_cast<float>(i);
  EXPECT_EQ(sent(*codec, layout, values), values);
}

TEST(Int8, TellsABlockThatIsNotFiniteFromItsNeighbours) {
  const auto codec = make("int8");
  const Layout layout = layout_of({512});
  std::vector<float> values(layout.count, 1);
  values[300] = INFINITY;
  const auto back = sent(*codec, layout, values);
  EXPECT_EQ(back[255], 1);
  EXPECT_TRUE(std::isnan(back[256]) && std::isnan(back[511]));
}

TEST(Int8, KeepsAResidualWhenItRoundsToNearestUnlessToldOtherwise) {
  EXPECT_TRUE(make("int8")->feedback());
  EXPECT_TRUE(make("int8(feedback=true)")->feedback());
  EXPECT_FALSE(make("int8(feedback=false)")->feedback());
  EXPECT_FALSE(make("int8(rounding=stochastic)")->feedback());
  EXPECT_THAT(failure_of([] { make("int8(rounding=stochastic, feedback=true)"); }).what, testing::HasSubstr("leave feedback out"));
}

TEST(Int8, RoundsStochasticallyToANeighbourOnly) {
  const auto codec = make("int8(rounding=stochastic)");
  EXPECT_TRUE(codec->unbiased());
  const Layout layout = layout_of({256});
  std::vector<float> values(layout.count, 0.25F);
  values[0] = 127;  // the scale is 1
  values[1] = -0.25F;
  values[2] = 126.5F;
  double sum = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const auto back = sent(*codec, layout, values, Random(1, step));
    EXPECT_EQ(back[0], 127);
    EXPECT_TRUE(back[1] == 0 || back[1] == -1);
    EXPECT_TRUE(back[2] == 126 || back[2] == 127);
    for (std::size_t i = 3; i < 256; ++i) sum += static_cast<double>(back[i]);
  }
  EXPECT_NEAR(sum / (100 * 253), 0.25, 0.014);  // five standard errors
}

}  // namespace
}  // namespace cohort::codec
