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

// Each rank by itself: x_i <- (x_i + x_j) / 2, with x_j as it was.
TEST(PairAveraging, WhereRanksOnlyPullEachTakesTheMeanAlone) {
  constexpr std::size_t kRanks = 5;
  Quadratic q{.sync = "pair_averaging(pull=true)", .ranks = kRanks, .steps = 4, .curvature = 0, .sizes = {70}};
  q.begins = [](int rank, std::size_t) { return 16.0 * rank; };
  const QuadraticRun run = train(q);
  std::vector<double> x{0, 16, 32, 48, 64};
  for (int step = 1; step <= 4; ++step) {
    const auto from = pulled_ranks(kSeed, step, kRanks);
    const std::vector<double> before = x;
    for (std::size_t r = 0; r < kRanks; ++r) {
      ASSERT_NE(from[r], static_cast<int>(r));
      x[r] = (before[r] + before[static_cast<std::size_t>(from[r])]) / 2;
      EXPECT_EQ(run.after[r][static_cast<std::size_t>(step - 1)][69], x[r]) << "rank " << r << ", step " << step;
    }
  }
}

// The bias of pulling: one run ends elsewhere than at the mean, at a weighting of the ranks that the draws make; on average over draws it
// is the mean. Of both-sided pairs every run ends there.
TEST(PairAveraging, WherePullingTheMeanWandersAndStaysOnlyOnAverage) {
  constexpr int kRanks = 8, kSteps = 60, kRuns = 4000;
  double sum = 0, squares = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> x{0, 1, 2, 3, 4, 5, 6, 7};
    for (int step = 1; step <= kSteps; ++step) {
      const auto from = pulled_ranks(static_cast<std::uint64_t>(run), step, kRanks);
      const std::vector<double> before = x;
      for (std::size_t r = 0; r < kRanks; ++r) x[r] = (before[r] + before[static_cast<std::size_t>(from[r])]) / 2;
    }
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / kRanks;
    ASSERT_LT(std::abs(x[0] - x[7]), 1e-6) << "they agree";
    sum += mean - 3.5;
    squares += (mean - 3.5) * (mean - 3.5);
  }
  const double deviation = std::sqrt(squares / kRuns);
  EXPECT_GT(deviation, 0.3) << "of one run, where ranks differ by 7";
  EXPECT_NEAR(sum / kRuns, 0, 4 * deviation / std::sqrt(kRuns));
}

TEST(PairAveraging, WherePullingEveryRankReceivesOneModel) {
  EXPECT_EQ(make("pair_averaging(pull=true)")->cost(100, 5), 100);
  EXPECT_EQ(make("pair_averaging(pull=true)")->cost(100, 1), 0);
  const QuadraticRun run = train({.sync = "pair_averaging(pull=true)", .ranks = 5, .steps = 10, .sizes = {64}});
  EXPECT_EQ(run.moved, 640);
}

}  // namespace
}  // namespace cohort::sync
