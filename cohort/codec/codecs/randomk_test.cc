#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

std::size_t chosen(const std::vector<float>& c) {
  return static_cast<std::size_t>(std::count_if(c.begin(), c.end(), [](float v) { return v != 0; }));
}

TEST(Randomk, SendsAShareOfEveryRangeAndNoPlaces) {
  const auto codec = make("randomk(ratio=0.01)");
  const Layout layout = layout_of({100000});
  EXPECT_EQ(codec->bound(layout, layout.all()), 4 + 4 * 1000);
  EXPECT_EQ(codec->bound(layout, {256, 256}), 4 + 4 * 3);
  EXPECT_EQ(codec->mix(), Mix::add);
  const std::vector<float> ones(layout.count, 1);
  for (std::uint64_t step = 0; step < 20; ++step) {
    const auto c = sent(*codec, layout, ones, Random(1, step));
    EXPECT_NEAR(static_cast<double>(chosen(c)), 1000, 1);
  }
}

TEST(Randomk, ChoosesEveryElementOfABlockEquallyOften) {
  const auto codec = make("randomk(ratio=0.1)");
  for (const std::size_t count : {7u, 256u, 300u}) {
    const Layout layout = layout_of({count});
    const std::vector<float> ones(layout.count, 1);
    constexpr int kDraws = 5000;
    std::vector<double> times(count);
    for (std::uint64_t step = 0; step < kDraws; ++step) {
      const auto c = sent(*codec, layout, ones, Random(3, step));
      for (std::size_t i = 0; i < count; ++i) times[i] += static_cast<double>(c[i]);
    }
    for (std::size_t i = 0; i < count; ++i) EXPECT_NEAR(times[i], 500, 5 * std::sqrt(5000 * 0.1 * 0.9)) << i << " of " << count;
  }
}

TEST(Randomk, HasTheVarianceOfItsRatio) {
  const auto codec = make("randomk(ratio=0.125, feedback=false)");
  EXPECT_TRUE(codec->unbiased());
  const Layout layout = layout_of({1000});
  const auto x = noise(layout, 2);
  double squares = 0, lost = 0;
  for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
  constexpr int kDraws = 400;
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    const auto c = sent(*codec, layout, x, Random(4, draw));
    for (std::size_t i = 0; i < x.size(); ++i) lost += std::pow(static_cast<double>(c[i]) - static_cast<double>(x[i]), 2) / kDraws;
  }
  EXPECT_NEAR(lost / squares, 7, 0.35);  // 1 / ratio - 1
}

TEST(Randomk, WithRatioOneChangesNoBit) {
  const Layout layout = layout_of({3, 600});
  const auto values = noise(layout, 4);
  for (const char* spec : {"randomk(ratio=1)", "randomk(ratio=1, feedback=false)"})
    EXPECT_TRUE(same_bits(sent(*make(spec), layout, values, Random(1, 2)), values));
}

// What an all-reduce does to payloads.
TEST(Randomk, SendsTheSumOfRanksAsTheSumOfPayloads) {
  const auto codec = make("randomk(ratio=0.2)");
  const Layout layout = layout_of({500, 30});
  auto a = noise(layout, 5), b = noise(layout, 6), sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  const Random random(1, 1);
  Buffer added = encoded(*codec, layout, a, layout.all(), random);
  const Buffer other = encoded(*codec, layout, b, layout.all(), random);
  ASSERT_EQ(added.size(), other.size());
  for (std::size_t at = 0; at < added.size(); at += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, added.data() + at, 4);
    std::memcpy(&y, other.data() + at, 4);
    x += y;
    std::memcpy(added.data() + at, &x, 4);
  }
  EXPECT_TRUE(same_bits(absorbed(*codec, layout, {added}, layout.all(), 1, 0, random), sent(*codec, layout, sum, random)));
}

TEST(Randomk, SaysThatATensorIsNotFiniteWhereNoneOfItIsChosen) {
  const auto codec = make("randomk(ratio=0.001)");
  const Layout layout = layout_of({30, 30});
  std::vector<float> values(layout.count, 1);
  values[3] = NAN;
  const auto c = sent(*codec, layout, values);
  EXPECT_TRUE(std::isnan(c[0]) && std::isnan(c[29]));
  EXPECT_FALSE(std::isnan(c[layout.tensors[1].first]));
}

TEST(Randomk, RefusesARatioOfNothing) {
  EXPECT_THAT(failure_of([] { make("randomk(ratio=1e-9)"); }).what, testing::HasSubstr("1e-7 is the least"));
}

}  // namespace
}  // namespace cohort::codec
