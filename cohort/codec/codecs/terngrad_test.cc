#include <gmock/gmock.h>

#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Terngrad, TakesTwoBitsAnElementAndTwoBytesABlock) {
  const Layout layout = layout_of({256, 257, 9});
  EXPECT_EQ(make("terngrad")->bound(layout, layout.all()), (2 + 64) + (2 + 64 + 2 + 1) + (2 + 3));
}

TEST(Terngrad, SendsTheLargestMagnitudeItsNegativeOrZero) {
  const Layout layout = layout_of({256});
  std::vector<float> values(layout.count, 0.5F);
  values[0] = -2;
  values[1] = 0;
  double sum = 0;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const auto c = sent(*make("terngrad"), layout, values, Random(1, step));
    EXPECT_EQ(c[0], -2);
    EXPECT_EQ(c[1], 0);
    for (std::size_t i = 2; i < 256; ++i) {
      EXPECT_TRUE(c[i] == 0 || c[i] == 2);
      sum += static_cast<double>(c[i]);
    }
  }
  EXPECT_NEAR(sum / (100 * 254), 0.5, 5 * std::sqrt(0.75 / (100 * 254)));  // five standard errors
}

TEST(Terngrad, WithClipHasTheMeanOfTheCutElements) {
  const auto codec = make("terngrad(clip=2.5)");
  EXPECT_FALSE(codec->unbiased());
  const Layout layout = layout_of({256});
  auto values = noise(layout, 4);
  values[9] = 100;
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  const double limit = 2.5 * std::sqrt(squares / 256);
  constexpr int kDraws = 2000;
  std::vector<double> sum(256);
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    const auto c = sent(*codec, layout, values, Random(1, draw));
    for (std::size_t i = 0; i < 256; ++i) sum[i] += static_cast<double>(c[i]) / kDraws;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const double wanted = std::clamp(static_cast<double>(values[i]), -limit, limit);
    EXPECT_NEAR(sum[i], wanted, 5 * std::sqrt(1.01 * limit * std::abs(wanted) / kDraws) + 1e-6) << i;
  }
}

TEST(Terngrad, WithClipIsLessNoisy) {
  const Layout layout = layout_of({256});
  const auto values = noise(layout, 5);
  const auto lost = [&](const char* spec) {
    double sum = 0;
    for (std::uint64_t draw = 0; draw < 200; ++draw) {
      const auto c = sent(*make(spec), layout, values, Random(1, draw));
      for (std::size_t i = 0; i < 256; ++i) sum += std::pow(static_cast<double>(c[i]) - static_cast<double>(values[i]), 2);
    }
    return sum;
  };
  EXPECT_LT(lost("terngrad(clip=2)"), 0.9 * lost("terngrad"));
}

}  // namespace
}  // namespace cohort::codec
