#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cohort/base/failure_of.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

struct Fit {
  double slope, intercept;
};

// Least squares in double.
Fit fit(const Dataset& set) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  Scratch scratch;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const Sample s = set.sample(i, scratch);
    float at = 0;
    std::memcpy(&at, s.input, sizeof at);
    n += 1, x += at, y += *s.values, xx += double{at} * at, xy += double{at} * *s.values;
  }
  const double slope = (n * xy - x * y) / (n * xx - x * x);
  return {slope, (y - slope * x) / n};
}

}  // namespace

TEST(LineDataset, LeastSquaresFindsTheLine) {
  const Fit exact = fit(*open_dataset("line(slope=3, intercept=-2, sd=0, samples=100)"));
  EXPECT_NEAR(exact.slope, 3, 1e-5);
  EXPECT_NEAR(exact.intercept, -2, 1e-4);
}

TEST(LineDataset, AMeanOfTheNoiseMovesTheIntercept) {
  const Fit moved = fit(*open_dataset("line(slope=3, intercept=-2, mu=0.5, sd=1, samples=100000)"));
  EXPECT_NEAR(moved.slope, 3, 0.02);         // sd of the estimate: 3 / (2.89 sqrt(1e5)) = 0.0033
  EXPECT_NEAR(moved.intercept, -0.5, 0.12);  // 0.019
}

TEST(LineDataset, RefusesARangeOfNothing) {
  EXPECT_EQ(failure_of([] { open_dataset("line(low=3, high=3)"); }).kind, Kind::usage);
}

}  // namespace cohort::data
