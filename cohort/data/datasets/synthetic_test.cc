#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

std::vector<std::uint8_t> pixels(const Dataset& set, std::int64_t index) {
  Scratch scratch;
  const std::uint8_t* at = set.sample(index, scratch).input;
  return {at, at + set.form().elements()};
}

}  // namespace

TEST(Synthetic, RepeatsForASeedAndDiffersForAnother) {
  const auto one = open_dataset("synthetic(samples=20, seed=4)");
  EXPECT_EQ(pixels(*one, 17), pixels(*open_dataset("synthetic(samples=20, seed=4)"), 17));
  EXPECT_NE(pixels(*one, 17), pixels(*open_dataset("synthetic(samples=20, seed=5)"), 17));
  EXPECT_NE(pixels(*one, 17), pixels(*open_dataset("synthetic(samples=20, seed=4, split=test)"), 17));
}

TEST(Synthetic, ANearestMeanClassifierLearnsItFromTheTrainingSplit) {
  const auto train = open_dataset("synthetic(samples=200)");
  const auto test = open_dataset("synthetic(samples=100, split=test)");
  const auto n = static_cast<std::size_t>(train->form().elements());
  std::vector<std::vector<double>> means(10, std::vector<double>(n));
  Scratch scratch;
  for (std::int64_t i = 0; i < 200; ++i) {
    const Sample s = train->sample(i, scratch);
    for (std::size_t p = 0; p < n; ++p) means[static_cast<std::size_t>(s.label)][p] += s.input[p] / 20.0;
  }
  int right = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const Sample s = test->sample(i, scratch);
    double best = std::numeric_limits<double>::max();
    std::int64_t guess = -1;
    for (std::size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (std::size_t p = 0; p < n; ++p) distance += (s.input[p] - means[c][p]) * (s.input[p] - means[c][p]);
      if (distance < best) best = distance, guess = static_cast<std::int64_t>(c);
    }
    right += guess == s.label ? 1 : 0;
  }
  EXPECT_EQ(right, 100);
}

TEST(Synthetic, TokensMostlyFollowTheirRule) {
  const auto set = open_dataset("synthetic(task=tokens, shape=50, classes=40, samples=30)");
  EXPECT_TRUE(set->form().next_tokens);
  int follows = 0;
  Scratch scratch;
  for (std::int64_t i = 0; i < 30; ++i) {
    const Sample s = set->sample(i, scratch);
    for (int t = 0; t < 50; ++t) {
      ASSERT_LT(s.input[t], 40);
      follows += s.targets[t] == (5 * s.input[t] + 7) % 40 ? 1 : 0;
    }
  }
  EXPECT_GT(follows, 1500 * 8 / 10);
  EXPECT_LT(follows, 1500);
}

TEST(Synthetic, RefusesSetsBeyondMemory) {
  EXPECT_THAT(failure_of([] { open_dataset("synthetic(samples=1000000000)"); }).what, testing::HasSubstr("fewer samples"));
}

}  // namespace cohort::data
