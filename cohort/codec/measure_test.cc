#include "cohort/codec/measure.h"

#include <gtest/gtest.h>

#include "cohort/base/isa.h"
#include "cohort/codec/draws.h"
#include "cohort/codec/testing.h"

namespace cohort::codec {
namespace {

class Measures : public testing::Test {
 protected:
  ~Measures() override { use_isa(runnable_isas().back()); }
};

TEST_F(Measures, AreRightAndHaveTheSameBitsOnEveryInstructionSet) {
  std::mt19937 random(1);
  for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 255u, 256u, 1000u}) {
    std::vector<float> x(count + 1);
    for (float& v : x) v = normal(random);
    if (count > 3) x[2] = -0.0F;
    double magnitudes = 0, squares = 0, negative = 0, negatives = 0;
    float most = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double v = static_cast<double>(x[i]);
      magnitudes += std::abs(v);
      squares += v * v;
      negative += v < 0 ? -v : 0;
      negatives += std::signbit(x[i]) ? 1 : 0;
      most = std::max(most, std::abs(x[i]));
    }
    use_isa(Isa::plain);
    const double plain[]{sum_of_magnitudes(x.data(), count), sum_of_squares(x.data(), count), sums_by_sign(x.data(), count).negative,
                         sums_by_sign(x.data(), count).other};
    EXPECT_NEAR(plain[0], magnitudes, 1e-9);
    EXPECT_NEAR(plain[1], squares, 1e-9);
    EXPECT_NEAR(plain[2], negative, 1e-9);
    EXPECT_NEAR(plain[3], magnitudes - negative, 1e-9);
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      const BySign sums = sums_by_sign(x.data(), count);
      EXPECT_EQ(sum_of_magnitudes(x.data(), count), plain[0]);
      EXPECT_EQ(sum_of_squares(x.data(), count), plain[1]);
      EXPECT_EQ(sums.negative, plain[2]);
      EXPECT_EQ(sums.other, plain[3]);
      EXPECT_EQ(sums.negatives, negatives);
      EXPECT_EQ(largest_magnitude(x.data(), count), std::bit_cast<std::uint32_t>(most));
    }
  }
}

TEST_F(Measures, SeeWhatIsNotFinite) {
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(100, 1);
    x[57] = bad;
    EXPECT_GE(largest_magnitude(x.data(), x.size()), kInfinity);
  }
}

TEST_F(Measures, DrawTheWordsOfTheGenerator) {
  const Random random = Random(7, 3, 1).of("w");
  for (const Isa isa : runnable_isas()) {
    use_isa(isa);
    std::vector<std::uint32_t> words(24, 5);
    draw_words(random, 256, 18, words.data());
    for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(words[i], random.words((256 + i) / 4)[i % 4]);
    for (std::size_t i = 20; i < 24; ++i) EXPECT_EQ(words[i], 5u);
  }
}

}  // namespace
}  // namespace cohort::codec
