#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/sync/graph.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

Quadratic without_gradients(const char* sync, int ranks, int steps) {
  Quadratic q{.sync = sync, .ranks = ranks, .steps = steps, .curvature = 0, .sizes = {40}};
  q.begins = [ranks](int rank, std::size_t) { return std::cos(2 * M_PI * rank / ranks); };  // the mode that shrinks the slowest on a ring
  return q;
}

TEST(Dpsgd, WithoutGradientsDisagreementShrinksByTheSecondEigenvalueAndTheMeanStays) {
  for (const int ranks : {4, 6, 8}) {
    const QuadraticRun run = train(without_gradients("dpsgd(graph=ring)", ranks, 5));
    const double lambda = contraction("ring", ranks);
    for (int step = 2; step <= 5; ++step)
      EXPECT_NEAR(disagreement(models_after(run, step)) / disagreement(models_after(run, step - 1)), lambda, 1e-9) << ranks << " ranks";
    expect_near(mean_of(run.models), Values(40, 0), 1e-12, "the mean");
  }
}

TEST(Dpsgd, OnAFullGraphOneStepIsTheMean) {
  const QuadraticRun run = train(without_gradients("dpsgd(graph=full)", 4, 1));
  for (const Values& model : run.models) expect_near(model, Values(40, 0), 1e-15);
}

// The mean moves by the mean of the gradients of the ranks' own models: on quadratics as with all-reduce.
TEST(Dpsgd, TheMeanOfQuadraticsIsThatOfAllReduce) {
  for (const char* sync : {"dpsgd(graph=ring)", "dpsgd(graph=full)"}) {
    const auto found = train({.sync = sync, .ranks = 5, .steps = 20, .rate = 0.1});
    const auto expected = train({.sync = "all_reduce", .ranks = 5, .steps = 20, .rate = 0.1});
    expect_near(mean_of(found.models), expected.models[0], 1e-12, sync);
    EXPECT_NE(found.models[0], found.models[1]);
  }
}

TEST(Dpsgd, UnknownGraphsAreRefusedWithTheKnown) {
  EXPECT_THAT(failure_of([] { make("dpsgd(graph=tree)"); }).what, testing::HasSubstr("ring"));
}

}  // namespace
}  // namespace cohort::sync
