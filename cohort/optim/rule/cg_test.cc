#include <gmock/gmock.h>

#include "cohort/optim/minimise_testing.h"

namespace cohort::optim {
namespace {

// scipy.optimize.minimize(method="CG", gtol=1e-12) of SciPy 1.17.1 with exact gradients, from (-1.2, 1): evaluations until the function was
// below 1e-10.
constexpr int kOfScipy = 78;

TEST(Cg, TakesNoMoreEvaluationsOfRosenbrocksFunctionThanScipy) {
  const auto plane = minimise("cg", rosenbrock, {-1.2, 1}, 1e-10, 200);
  EXPECT_LE(plane.f, 1e-10);
  EXPECT_LE(plane.evaluations, kOfScipy);
}

TEST(Cg, WithExactSearchesTenCurvaturesNeedTenDirections) {
  for (const char* spec : {"cg(c2=0.01)", "cg(beta=fr, c2=0.01)"})
    EXPECT_LE(minimise(spec, bowl, Numbers(10), 1e-12, 100).evaluations, 2 * 10 + 4) << spec << ": a trial and a correction each";
}

TEST(Cg, RanksThatShareTensorsOutTakeTheSameStepsToTheBit) {
  const auto all = minimise("cg", rosenbrock, {-1.2, 1}, 1e-10, 200);
  for (const int ranks : {2, 3}) EXPECT_EQ(minimise_on(ranks, false, "cg", rosenbrock, {-1.2, 1}, 1e-10, 200).x, all.x) << ranks;
}

TEST(Cg, KeepsThreeVectorsLikeItsTensor) {
  EXPECT_THAT(make("cg")->state_names(), testing::ElementsAre("start", "direction", "previous_gradient", "search"));
}

}  // namespace
}  // namespace cohort::optim
