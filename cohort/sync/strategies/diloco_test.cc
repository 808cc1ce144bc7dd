#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(DiLoCo, WithAnOuterRateOfOneAndNoMomentumItIsLocalSgd) {
  Quadratic q{.sync = "local_sgd(h=3)", .ranks = 4, .steps = 12, .rate = 0.1, .curvature = 0.7};
  const auto expected = train(q).models;
  q.sync = "diloco(h=3, lr=1, momentum=0)";
  const auto found = train(q).models;
  for (std::size_t r = 0; r < 4; ++r) expect_near(found[r], expected[r], 1e-12);
}

// One element, one step a round: d = rate h (x - mean b); u = m u + d; a = a - lr (d + m u).
TEST(DiLoCo, TakesNesterovStepsAlongWhatAllHaveMoved) {
  Quadratic q{.sync = "diloco(h=1, lr=0.5, momentum=0.25)", .ranks = 2, .steps = 3, .rate = 0.25, .curvature = 0.5, .sizes = {1}};
  q.target = [](int rank, std::size_t) { return rank == 0 ? 2 : 6; };
  double anchor = 0, u = 0;
  for (int step = 0; step < 3; ++step) {
    const double d = 0.25 * 0.5 * (anchor - 4);
    u = step == 0 ? d : 0.25 * u + d;
    anchor -= 0.5 * (d + 0.25 * u);
  }
  const QuadraticRun run = train(q);
  EXPECT_NEAR(run.models[0][0], anchor, 1e-15);
  EXPECT_GT(anchor, 0) << "towards the targets, not away from them";
  EXPECT_EQ(run.consensus[1][0], run.models[0][0]);
}

TEST(DiLoCo, StandsForTheAnchorBetweenRounds) {
  const QuadraticRun run = train({.sync = "diloco(h=4)", .ranks = 2, .steps = 6});
  EXPECT_EQ(run.consensus[0], run.after[0][3]);
  EXPECT_NE(run.models[0], run.consensus[0]);
}

}  // namespace
}  // namespace cohort::sync
