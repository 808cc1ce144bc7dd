#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(Sma, WithoutGradientsDisagreementShrinksByOneMinusAlphaAndTheMeanStays) {
  Quadratic q{.sync = "sma(alpha=0.25)", .ranks = 4, .steps = 3, .curvature = 0, .sizes = {30}};
  q.begins = [](int rank, std::size_t element) { return rank * 2.0 + static_cast<double>(element); };
  const QuadraticRun run = train(q);
  for (int r = 0; r < 4; ++r)
    for (std::size_t i = 0; i < 30; ++i)
      ASSERT_EQ(run.models[static_cast<std::size_t>(r)][i], 3 + static_cast<double>(i) + (r * 2.0 - 3) * 0.75 * 0.75 * 0.75);
}

}  // namespace
}  // namespace cohort::sync
