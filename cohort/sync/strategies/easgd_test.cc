#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

// The centre is the consensus.
double sum_with_centre(const QuadraticRun& run, std::size_t element) {
  double sum = run.consensus[0][element];
  for (const Values& model : run.models) sum += model[element];
  return sum;
}

TEST(Easgd, OnlyGradientsChangeTheSumOfCentreAndRanks) {
  Quadratic q{.sync = "easgd(h=1, beta=0.5)", .ranks = 4, .steps = 1, .sizes = {300}};
  q.begins = [](int, std::size_t element) { return 0.5 * static_cast<double>(element % 4); };
  const QuadraticRun apart = train(q);
  for (std::size_t i = 0; i < 300; ++i) {
    double gradients = 0;
    const double x = 0.5 * static_cast<double>(i % 4);
    for (int r = 0; r < 4; ++r) gradients += q.curvature * (x - target_of(q, r, i));
    ASSERT_NEAR(sum_with_centre(apart, i), 5 * x - q.rate * gradients, 1e-12) << "only gradients change the sum";
  }
}

// Two ranks, one element, one round: x_i = x - rate g_i; x_i' = x_i - a (x_i - c), c' = c + a sum (x_i - c), with the c of before.
TEST(Easgd, RanksAndCentreMoveTowardsEachOther) {
  Quadratic q{.sync = "easgd(h=1, beta=0.5)", .ranks = 2, .steps = 1, .rate = 0.5, .curvature = 0.5, .sizes = {1}};
  q.target = [](int rank, std::size_t) { return rank == 0 ? 4 : 8; };
  const QuadraticRun run = train(q);
  const double x0 = 1, x1 = 2, a = 0.25;
  EXPECT_EQ(run.models[0][0], x0 - a * x0);
  EXPECT_EQ(run.models[1][0], x1 - a * x1);
  EXPECT_EQ(run.consensus[0][0], a * (x0 + x1));
}

}  // namespace
}  // namespace cohort::sync
