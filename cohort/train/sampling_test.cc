#include "cohort/train/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "cohort/base/failure_of.h"

namespace cohort::train {
namespace {

constexpr int kDraws = 20000;

std::map<std::int64_t, double> shares(const std::vector<float>& logits, const SamplingOptions& options) {
  data::Rng rng(7);
  std::map<std::int64_t, double> counts;
  for (int i = 0; i < kDraws; ++i) counts[sample_token(logits, options, rng)] += 1.0 / kDraws;
  return counts;
}

const std::vector<float> kLogits{0, 1, 2, -1, 1.5F};

TEST(Sampling, DrawsTheSoftmaxOfTheTemperature) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    for (const float z : kLogits) sum += std::exp(double{z} / temperature);
    auto drawn = shares(kLogits, {.temperature = temperature});
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(double{kLogits[i]} / temperature) / sum;
      EXPECT_NEAR(drawn[static_cast<std::int64_t>(i)], p, 5 * std::sqrt(p * (1 - p) / kDraws)) << temperature << " " << i;
    }
  }
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheLargest) {
  data::Rng rng(1);
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, rng), 1);
}

TEST(Sampling, TopKKeepsTheLargest) {
  const auto drawn = shares(kLogits, {.top_k = 2});
  ASSERT_EQ(drawn.size(), 2U);
  const double p = 1 / (1 + std::exp(-0.5));
  EXPECT_NEAR(drawn.at(2), p, 5 * std::sqrt(p * (1 - p) / kDraws));
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(shares(logits, {.top_p = 0.4}).size(), 1U);
  EXPECT_EQ(shares(logits, {.top_p = 0.7}).size(), 2U);
  EXPECT_EQ(shares(logits, {.top_p = 0.9}).size(), 3U);
}

TEST(Sampling, ImpossibleTokensAreNeverDrawn) {
  const auto drawn = shares({0, -std::numeric_limits<float>::infinity(), 0}, {});
  EXPECT_FALSE(drawn.contains(1));
}

TEST(Sampling, RefusesOptionsThatCannotBe) {
  for (const SamplingOptions& bad : {SamplingOptions{.temperature = -1}, SamplingOptions{.temperature = std::nan("")},
                                     SamplingOptions{.top_k = -1}, SamplingOptions{.top_p = 0}, SamplingOptions{.top_p = 1.5}})
    EXPECT_EQ(failure_of([&] { check(bad); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::train
