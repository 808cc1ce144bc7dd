#include <gmock/gmock.h>

#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

using testing::Each;

TEST(SignMajority, TakesABitAnElementAndAByteABlock) {
  const Layout layout = layout_of({256, 257, 9});
  EXPECT_EQ(make("sign_majority")->bound(layout, layout.all()), (1 + 32) + (1 + 32 + 1 + 1) + (1 + 2));
}

TEST(SignMajority, IsTheSignWhateverTheSize) {
  const Layout layout = layout_of({300});
  auto values = noise(layout, 1);
  const auto signs = sent(*make("sign_majority"), layout, values);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(signs[i], std::copysign(1.0F, values[i]));
  for (float& v : values) v *= 1e-20F;
  EXPECT_TRUE(same_bits(sent(*make("sign_majority"), layout, values), signs));
}

// Owners add and encode once more: see sync/coded_reduce_test.cc.
TEST(SignMajority, IsNotMovedByFewerThanHalfOfTheRanksWhereTheOthersAgree) {
  const auto codec = make("sign_majority");
  const Layout layout = layout_of({256});
  const auto honest = noise(layout, 2);
  auto turned = honest;
  for (float& v : turned) v *= -1000;
  for (std::size_t ranks = 1; ranks <= 9; ++ranks)
    for (std::size_t liars = 0; 2 * liars < ranks; ++liars) {
      std::vector<Buffer> payloads(ranks, encoded(*codec, layout, honest));
      for (std::size_t r = 0; r < liars; ++r) payloads[r] = encoded(*codec, layout, turned);
      const auto sum = absorbed(*codec, layout, payloads, layout.all());
      EXPECT_TRUE(same_bits(sent(*codec, layout, sum), sent(*codec, layout, honest))) << liars << " of " << ranks;
    }
}

TEST(SignMajority, DrawsTheSignOfAZeroAndOfATie) {
  const auto codec = make("sign_majority");
  const Layout layout = layout_of({256});
  std::vector<float> values(layout.count);
  values[0] = 1;
  values[1] = -1;
  double sum = 0;
  constexpr int kDraws = 100;
  for (std::uint64_t step = 0; step < kDraws; ++step) {
    const auto c = sent(*codec, layout, values, Random(5, step));
    EXPECT_EQ(c[0], 1);
    EXPECT_EQ(c[1], -1);
    for (std::size_t i = 2; i < 256; ++i) {
      EXPECT_EQ(std::abs(c[i]), 1);
      sum += static_cast<double>(c[i]);
    }
  }
  EXPECT_LE(std::abs(sum), 5 * std::sqrt(254.0 * kDraws));  // five standard errors
}

TEST(SignMajority, OfZerosIsZeroAndPromisesNoBound) {
  const auto codec = make("sign_majority");
  const Layout layout = layout_of({256});
  EXPECT_THAT(sent(*codec, layout, std::vector<float>(256)), Each(0.0F));
  EXPECT_EQ(codec->contraction(layout), 0);
  EXPECT_TRUE(codec->votes());
  EXPECT_FALSE(codec->feedback());
}

}  // namespace
}  // namespace cohort::codec
