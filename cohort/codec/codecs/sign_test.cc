#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/feedback.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Sign, SendsTheMeanMagnitudeWithEverySign) {
  const Layout layout = layout_of({4});
  std::vector<float> values(layout.count);
  values[0] = 1, values[1] = -6, values[2] = -0.0F, values[3] = 3;
  const auto back = sent(*make("sign"), layout, values);
  EXPECT_THAT(std::vector<float>(back.begin(), back.begin() + 4), testing::ElementsAre(2.5F, -2.5F, -2.5F, 2.5F));
}

TEST(Sign, TakesABitAnElementAndTwoBytesABlock) {
  const Layout layout = layout_of({256, 257, 9});
  EXPECT_EQ(make("sign")->bound(layout, layout.all()), (2 + 32) + (2 + 32 + 2 + 1) + (2 + 2));
}

// |x - C(x)|^2 = |x|^2 - |x|_1^2 / n, but for the rounding of the scale.
TEST(Sign, ContractsByTheRatioOfNorms) {
  const Layout layout = layout_of({256});
  for (unsigned seed = 0; seed < 50; ++seed) {
    auto x = noise(layout, seed);
    for (float& v : x) v = std::copysign(std::pow(std::abs(v), 0.5F + static_cast<float>(seed % 5)), v);
    const auto c = sent(*make("sign"), layout, x);
    double squares = 0, magnitudes = 0, lost = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares += std::pow(static_cast<double>(x[i]), 2);
      magnitudes += std::abs(static_cast<double>(x[i]));
      lost += std::pow(static_cast<double>(x[i]) - static_cast<double>(c[i]), 2);
    }
    EXPECT_NEAR(lost / squares, 1 - magnitudes * magnitudes / (256 * squares), 1e-4) << seed;
  }
}

// Karimireddy et al. 2019, theorem I: with g = e_1 (1 + d) or e_2 (1 - d) by turns in a rotated basis, signs alone never leave a line.
TEST(Sign, WithItsResidualFollowsAGradientWhoseSignsSayNothing) {
  const Layout layout = layout_of({2});
  const auto codec = make("sign");
  Feedback feedback(layout.count);
  double moved[2]{}, wanted[2]{}, by_signs[2]{};
  for (int step = 0; step < 400; ++step) {
    const float a = step % 2 == 0 ? 3.0F : -1.0F, b = step % 2 == 0 ? -2.0F : 2.0F;
    std::vector<float> g(layout.count);
    g[0] = a, g[1] = b;
    const Piece p = feedback.begin(whole(g), 1);
    const std::vector<float> values(static_cast<const float*>(p.data), static_cast<const float*>(p.data) + p.count);
    const auto c = sent(*codec, layout, values), alone = sent(*codec, layout, g);
    feedback.note_sent(whole(c));
    feedback.settle(true);
    for (int i = 0; i < 2; ++i) {
      moved[i] += static_cast<double>(c[static_cast<std::size_t>(i)]);
      wanted[i] += static_cast<double>(g[static_cast<std::size_t>(i)]);
      by_signs[i] += static_cast<double>(alone[static_cast<std::size_t>(i)]);
    }
  }
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(moved[i], wanted[i], 10) << i;
  EXPECT_EQ(by_signs[0], -by_signs[1]);  // on the line, whatever the gradients
  EXPECT_EQ(wanted[0], 400);
  EXPECT_EQ(wanted[1], 0);
}

TEST(Sign, OfABlockThatIsNotFiniteIsNaNAndItsNeighboursAreNot) {
  const Layout layout = layout_of({512});
  std::vector<float> values(layout.count, 1);
  values[300] = INFINITY;
  const auto back = sent(*make("sign"), layout, values);
  EXPECT_EQ(back[255], 1);
  EXPECT_TRUE(std::isnan(back[256]) && std::isnan(back[511]));
}

TEST(Sign, RefusesAScaleThatIsNone) {
  const Layout layout = layout_of({8});
  for (const unsigned scale : {0x8000u, 0x7f80u, 0x7fc1u, 0xffffu}) {
    const Buffer payload{static_cast<std::byte>(scale & 0xff), static_cast<std::byte>(scale >> 8), std::byte{0}};
    EXPECT_EQ(failure_of([&] { absorbed(*make("sign"), layout, {payload}, layout.all()); }).kind, Kind::corrupt) << scale;
  }
}

}  // namespace
}  // namespace cohort::codec
