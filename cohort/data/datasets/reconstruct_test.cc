#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/data/dataset.h"

namespace cohort::data {

TEST(ReconstructDataset, TargetsAreThePixelsOfTheInput) {
  const auto plain = open_dataset("synthetic(shape=1x3x3, samples=5)");
  const auto set = open_dataset("reconstruct(of=synthetic(shape=1x3x3, samples=5))");
  ASSERT_EQ(set->size(), 5);
  EXPECT_EQ(set->form().targets, 9);
  EXPECT_EQ(set->form().classes, 0);
  Scratch one, two;
  for (std::int64_t i = 0; i < 5; ++i) {
    const Sample from = plain->sample(i, one), made = set->sample(i, two);
    for (int k = 0; k < 9; ++k) {
      EXPECT_EQ(made.input[k], from.input[k]);
      EXPECT_EQ(made.values[k], static_cast<float>(from.input[k]) / 255.0F);
    }
  }
}

TEST(ReconstructDataset, TakesTheFirstSamplesAndRefusesTokens) {
  EXPECT_EQ(open_dataset("reconstruct(of=synthetic(shape=1x3x3, samples=5), samples=2)")->size(), 2);
  const Error error = failure_of([] { open_dataset("reconstruct(of=synthetic(task=tokens, shape=8, samples=5))"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, testing::HasSubstr("tokens"));
}

}  // namespace cohort::data
