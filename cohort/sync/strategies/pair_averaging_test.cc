#include <cmath>

#include "cohort/sync/matching.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(PairAveraging, BothOfAPairTakeTheMeanOfTheTwo) {
  Quadratic q{.sync = "pair_averaging", .ranks = 5, .steps = 3, .curvature = 0, .sizes = {70}};
  q.begins = [](int rank, std::size_t element) { return 8.0 * rank + static_cast<double>(element % 3); };
  const QuadraticRun run = train(q);
  std::vector<double> x{0, 8, 16, 24, 32};
  for (int step = 1; step <= 3; ++step) {
    const auto partner = matching(kSeed, step, 5);
    const std::vector<double> before = x;
    for (std::size_t r = 0; r < 5; ++r) {
      x[r] = (before[r] + before[static_cast<std::size_t>(partner[r])]) / 2;
      EXPECT_EQ(run.after[r][static_cast<std::size_t>(step - 1)][69], x[r]) << "rank " << r << ", step " << step;
    }
  }
  EXPECT_EQ(mean_of(run.models)[0], 16);
}

TEST(PairAveraging, TwoRanksAreOneAfterAStep) {
  Quadratic q{.sync = "pair_averaging", .ranks = 2, .steps = 1, .curvature = 0};
  q.begins = [](int rank, std::size_t) { return 3.0 * rank; };
  const QuadraticRun run = train(q);
  EXPECT_EQ(run.models[0][0], 1.5);
  EXPECT_EQ(run.models[0], run.models[1]);
}

TEST(PairAveraging, TheMeanOfQuadraticsIsThatOfAllReduce) {
  const auto found = train({.sync = "pair_averaging", .ranks = 5, .steps = 20, .rate = 0.1});
  const auto expected = train({.sync = "all_reduce", .ranks = 5, .steps = 20, .rate = 0.1});
  expect_near(mean_of(found.models), expected.models[0], 1e-12);
}

// Of 8 ranks each step leaves 6/14 of the squared disagreement, on average over matchings.
TEST(PairAveraging, DisagreementShrinksAsThePairsOfAPerfectMatchingPromise) {
  constexpr int kDraws = 20000;
  double left = 0;
  for (std::int64_t step = 1; step <= kDraws; ++step) {
    const auto partner = matching(3, step, 8);
    double before = 0, after = 0;
    for (std::size_t r = 0; r < 8; ++r) {
      const auto x = [](std::size_t rank) { return static_cast<double>(rank * rank) - 17.5; };  // of mean zero
      const double mixed = (x(r) + x(static_cast<std::size_t>(partner[r]))) / 2;
      before += x(r) * x(r);
      after += mixed * mixed;
    }
    left += after / before / kDraws;
  }
  EXPECT_NEAR(left, 6.0 / 14, 0.01);
}

}  // namespace
}  // namespace cohort::sync
