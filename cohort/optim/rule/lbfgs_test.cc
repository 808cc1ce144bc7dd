#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/minimise_testing.h"

namespace cohort::optim {
namespace {

// torch.optim.LBFGS(lr=1, history_size=10, line_search_fn="strong_wolfe", tolerance_grad=0, tolerance_change=0) of torch 2.11, in double,
// from these points: evaluations until the function was below 1e-10.
constexpr int kOfTorchInThePlane = 44, kOfTorchInTenDimensions = 82;

TEST(Lbfgs, TakesNoMoreEvaluationsOfRosenbrocksFunctionThanTorch) {
  const auto plane = minimise("lbfgs", rosenbrock, {-1.2, 1}, 1e-10, 200),
             ten = minimise("lbfgs", rosenbrock, Numbers(10, -1.0), 1e-10, 400);
  EXPECT_LE(plane.f, 1e-10);
  EXPECT_LE(plane.evaluations, kOfTorchInThePlane);
  EXPECT_LE(ten.f, 1e-10);
  EXPECT_LE(ten.evaluations, kOfTorchInTenDimensions);
}

TEST(Lbfgs, WithExactSearchesTenCurvaturesNeedTenDirections) {
  EXPECT_LE(minimise("lbfgs(c2=0.01, memory=20)", bowl, Numbers(10), 1e-12, 100).evaluations, 2 * 10 + 3)
      << "a trial and a correction each";
}

TEST(Lbfgs, RanksThatShareTensorsOutTakeTheSameStepsToTheBit) {
  const auto all = minimise("lbfgs", rosenbrock, Numbers(6, -1.0), 1e-10, 400);
  for (const int ranks : {1, 2, 3})
    for (const bool replicated : {true, false}) {
      const auto other = minimise_on(ranks, replicated, "lbfgs", rosenbrock, Numbers(6, -1.0), 1e-10, 400);
      EXPECT_EQ(other.x, all.x) << ranks << replicated;
      EXPECT_EQ(other.evaluations, all.evaluations);
    }
}

TEST(Lbfgs, ARuleThatKnowsNothingButTheStateGoesOnTheSame) {
  const auto all = minimise("lbfgs(memory=4)", rosenbrock, Numbers(6, -1.0), 1e-10, 400);
  EXPECT_EQ(minimise("lbfgs(memory=4)", rosenbrock, Numbers(6, -1.0), 1e-10, 400, 17).x, all.x);
}

TEST(Lbfgs, WithoutALossItGoesBySlopes) {
  const auto blind = [](const Numbers& x, Numbers& g) {
    const double f = bowl(x, g);
    return f <= 1e-12 ? f : std::nan("");
  };
  EXPECT_LT(minimise("lbfgs", blind, Numbers(10), 1e-12, 200).evaluations, 40);
}

TEST(Lbfgs, StandsStillWhereTheGradientIsSmallEnoughOrTheRateIsZero) {
  const auto there = minimise("lbfgs(gtol=0.5)", bowl, Numbers(10), 0, 100);
  Numbers g(10);
  bowl(there.x, g);
  EXPECT_LE(norm(g), 0.5);
  EXPECT_GT(norm(g), 1e-3);
}

TEST(Lbfgs, DecayIsPartOfTheFunction) {
  // sum of k (x - 1)^2 / 2 + 0.5 x^2 / 2 is least at k / (k + 0.5)
  const auto there = minimise("lbfgs(weight_decay=0.5)", bowl, Numbers(4), -1, 60);
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(there.x[k], static_cast<double>(k + 1) / (static_cast<double>(k) + 1.5), 1e-7);
}

}  // namespace
}  // namespace cohort::optim
