#include <gmock/gmock.h>

#include "cohort/base/half.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

TEST(Onebit, SendsTheMeanOfTheNegativesAndThatOfTheOthers) {
  const Layout layout = layout_of({5});
  const std::vector<float> values{3, -1, -0.0F, 0, 6, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};  // behind the tensor: not looked at
  const auto back = sent(*make("onebit"), layout, values);
  EXPECT_THAT(std::vector<float>(back.begin(), back.begin() + 5), testing::ElementsAre(3, -0.5F, -0.5F, 3, 3));
}

TEST(Onebit, TakesABitAnElementAndTwoMeansABlock) {
  const Layout layout = layout_of({256, 257, 9});
  EXPECT_EQ(make("onebit")->bound(layout, layout.all()), (4 + 32) + (4 + 32 + 4 + 1) + (4 + 2));
}

TEST(Onebit, KeepsTheSumOfABlockButForTheRoundingOfTheMeans) {
  const Layout layout = layout_of({1000});
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto x = noise(layout, seed), c = sent(*make("onebit"), layout, x);
    for (std::size_t first = 0; first < 1000; first += kBlock) {
      double sum = 0, kept = 0, magnitudes = 0;
      for (std::size_t i = first; i < std::min<std::size_t>(first + kBlock, 1000); ++i) {
        sum += static_cast<double>(x[i]);
        kept += static_cast<double>(c[i]);
        magnitudes += std::abs(static_cast<double>(x[i]));
      }
      EXPECT_LE(std::abs(sum - kept), magnitudes / 256) << seed;
    }
  }
}

TEST(Onebit, OfOneSignOnlyIsTheMean) {
  const Layout layout = layout_of({4});
  std::vector<float> values(layout.count);
  values = {-1, -2, -3, -2};
  values.resize(layout.count);
  const auto back = sent(*make("onebit"), layout, values);
  EXPECT_THAT(std::vector<float>(back.begin(), back.begin() + 4), testing::Each(-2));
}

TEST(Onebit, OfTheLargestNumbersStaysFinite) {
  const Layout layout = layout_of({256});
  std::vector<float> values(layout.count, std::numeric_limits<float>::max());
  EXPECT_EQ(sent(*make("onebit"), layout, values)[7], from_bf16(0x7f7f));
}

}  // namespace
}  // namespace cohort::codec
