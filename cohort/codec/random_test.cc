#include "cohort/codec/random.h"

#include <gtest/gtest.h>

namespace cohort::codec {
namespace {

TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, DiffersBySeedStepRankTensorAndElementAndByNothingElse) {
  const Random random(7, 3, 1);
  EXPECT_EQ(random.of("fc1").words(5), Random(7, 3, 1).of("fc1").words(5));
  EXPECT_NE(random.of("fc1").words(5), Random(8, 3, 1).of("fc1").words(5));
  EXPECT_NE(random.of("fc1").words(5), Random(7, 4, 1).of("fc1").words(5));
  EXPECT_NE(random.of("fc1").words(5), Random(7, 3, 2).of("fc1").words(5));
  EXPECT_NE(random.of("fc1").words(5), random.of("fc2").words(5));
  EXPECT_NE(random.of("fc1").words(5), random.of("fc1").words(6));
  EXPECT_EQ(random.of("fc1").uniform(22), static_cast<float>(random.of("fc1").words(5)[2] >> 8) * 0x1p-24F);
}

TEST(Random, IsUniformBetweenZeroAndOne) {
  const Random random = Random(1, 1).of("w");
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = static_cast<double>(random.uniform(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);  // five standard errors
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace cohort::codec
