#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/data/transform_testing.h"

namespace cohort::data {

using testing::HasSubstr;

TEST(Normalise, AloneGivesMeanZeroAndDeviationOneInEveryChannel) {
  const auto image = made("normalise");
  for (std::int64_t c = 0; c < kTestShape.channels; ++c) {
    double sum = 0, squares = 0;
    for (std::int64_t i = c * kTestShape.plane(); i < (c + 1) * kTestShape.plane(); ++i) {
      const double value = image[static_cast<std::size_t>(i)];
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum / 63, 0, 1e-5);
    EXPECT_NEAR(squares / 63, 1, 1e-5);
  }
}

TEST(Normalise, FollowsItsFormula) {
  const auto plain = made("");
  const auto image = made("normalise(mean=0.5/0.25, std=0.5)");
  EXPECT_NEAR(image[0], (plain[0] - 0.5F) / 0.5F, 1e-6);
  EXPECT_NEAR(image[63], (plain[63] - 0.25F) / 0.5F, 1e-6);
}

TEST(Normalise, RemembersWhatItMeasured) {
  const std::string text = Transforms::parse("flip, normalise", test_set()).text();
  EXPECT_THAT(text, HasSubstr("normalise(mean=0."));
  EXPECT_EQ(Transforms::parse(text, test_set()).text(), text);
  EXPECT_EQ(made(text, 3), made("flip, normalise", 3));
}

TEST(Normalise, RefusesWhatCannotBe) {
  EXPECT_THAT(failure_of([] { made("normalise(mean=1/2/3)"); }).what, HasSubstr("2 channels"));
  EXPECT_THAT(failure_of([] { made("normalise(std=0)"); }).what, HasSubstr("above 0"));
  EXPECT_THAT(failure_of([] { made("normalise, flip"); }).what, HasSubstr("last"));
}

TEST(Transforms, WithoutAnyPixelsAreInTheUnitInterval) {
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<std::uint8_t>(value);
    float out = -1;
    TransformScratch transform_scratch;
    Transforms().make(&byte, &out, {1, 1, 1}, Rng(0), transform_scratch);
    EXPECT_TRUE(out >= 0 && out <= 1);
    EXPECT_NEAR(out, value / 255.0, 1e-7);
  }
}

TEST(Transforms, OfEvaluationKeepNothingRandom) {
  const auto train = Transforms::parse("flip(chance=1), rotate, normalise", test_set());
  EXPECT_EQ(train.for_evaluation().text(), Transforms::parse("normalise", test_set()).text());
}

TEST(Transforms, AreForImagesOnly) {
  const auto tokens = open_dataset("synthetic(task=tokens, shape=8, samples=2)");
  EXPECT_THAT(failure_of([&] { Transforms::parse("flip", *tokens); }).what, HasSubstr("tokens"));
  EXPECT_TRUE(Transforms::parse(" ", *tokens).empty());
  EXPECT_THAT(failure_of([] { made("flop"); }).what, HasSubstr("did you mean 'flip'"));
}

}  // namespace cohort::data
