#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(LocalSgd, TheMeanOfQuadraticsWithOneHessianDoesNotDependOnTheRound) {
  Quadratic q{.sync = "local_sgd(h=1)", .ranks = 4, .steps = 24, .rate = 0.13, .curvature = 0.9};
  const Values expected = mean_of(train(q).models);
  for (const char* sync : {"local_sgd(h=2)", "local_sgd(h=4)", "local_sgd(h=8)", "local_sgd(h=24)"}) {
    q.sync = sync;
    expect_near(mean_of(train(q).models), expected, 1e-12, sync);
  }
}

TEST(LocalSgd, RanksAreTheSameAfterARoundAndDriftBetween) {
  const QuadraticRun run = train({.sync = "local_sgd(h=4)", .ranks = 3, .steps = 6});
  EXPECT_EQ(run.after[0][3], run.after[2][3]);
  EXPECT_NE(run.after[0][4], run.after[2][4]);
  expect_near(run.consensus[1], mean_of(run.models), 1e-15);
}

TEST(LocalSgd, WithoutGradientsTheMeanStays) {
  Quadratic q{.sync = "local_sgd(h=2)", .ranks = 4, .steps = 2, .curvature = 0};
  q.begins = [](int rank, std::size_t element) { return rank * 0.25 + static_cast<double>(element % 4); };
  const QuadraticRun run = train(q);
  for (std::size_t i = 0; i < run.models[0].size(); ++i) ASSERT_EQ(run.models[3][i], 0.375 + static_cast<double>(i % 4));
}

}  // namespace
}  // namespace cohort::sync
