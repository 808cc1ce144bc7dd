#include <gmock/gmock.h>

#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

double rms(const std::vector<float>& x, std::size_t count) {
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(squares / static_cast<double>(count));
}

TEST(Significant, SendsWhatIsLargerThanAShareOfTheRootMeanSquare) {
  const Layout layout = layout_of({1000});
  for (const double share : {0.5, 1.0, 2.0}) {
    const auto x = noise(layout, 1), c = sent(*make("significant(cap=1, share=" + std::to_string(share) + ")"), layout, x);
    for (std::size_t i = 0; i < 1000; ++i)
      ASSERT_EQ(c[i], std::abs(static_cast<double>(x[i])) > static_cast<double>(static_cast<float>(share * rms(x, 1000))) ? x[i] : 0)
          << share;
  }
}

TEST(Significant, ChoosesTheSameElementsAtAnyScaleOfTheGradient) {
  const Layout layout = layout_of({1000});
  const auto codec = make("significant");
  auto x = noise(layout, 2);
  auto c = sent(*codec, layout, x);
  for (float& v : x) v = std::ldexp(v, 40);
  for (float& v : c) v = std::ldexp(v, 40);
  EXPECT_TRUE(same_bits(sent(*codec, layout, x), c));
}

TEST(Significant, AlwaysSendsTheLargest) {
  const Layout layout = layout_of({50});
  std::vector<float> values(layout.count, 1);
  values[7] = -1.5F;
  const auto c = sent(*make("significant(share=100)"), layout, values);
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(c[i], i == 7 ? -1.5F : 0);
  EXPECT_EQ(make("significant(share=100)")->contraction(layout), 1.0 / 50);
}

TEST(Significant, SendsNoMoreThanItsCapAndDeclaresWhatIsLost) {
  const Layout layout = layout_of({1000});
  const auto codec = make("significant(share=0.1, cap=0.05)");
  EXPECT_EQ(encoded(*codec, layout, noise(layout, 3)).size(), 4 + 50 * 8);
  EXPECT_EQ(codec->contraction(layout), 0.05);
  EXPECT_DOUBLE_EQ(make("significant(share=0.8, cap=1)")->contraction(layout), 1 - 0.8 * 0.8);
}

TEST(Significant, TakesFourBytesATensorAndEightAnElement) {
  const Layout layout = layout_of({1000});
  std::vector<float> values(layout.count, 0.001F);
  values[3] = values[900] = 5;
  EXPECT_EQ(encoded(*make("significant"), layout, values).size(), 4 + 2 * 8);
}

}  // namespace
}  // namespace cohort::codec
