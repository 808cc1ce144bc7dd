#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(ParallelSgd, RanksTrainAsIfAloneAndTheJobStandsForTheirMean) {
  Quadratic q{.sync = "parallel_sgd", .ranks = 4, .steps = 5};
  const QuadraticRun run = train(q);
  EXPECT_EQ(run.moved, 0) << "in steps; the one average comes after them";
  for (int r = 0; r < 4; ++r) {
    Quadratic alone{.sync = "all_reduce", .ranks = 1, .steps = 5};
    alone.target = [&](int, std::size_t element) { return target_of(q, r, element); };
    EXPECT_EQ(run.models[static_cast<std::size_t>(r)], train(alone).models[0]);
  }
  EXPECT_EQ(run.consensus[2], mean_of(run.models)) << "dyadic numbers, to the bit";
}

// Targets b + e_r with e of variance 1: the mean is as far from b as the mean of n numbers e is.
TEST(ParallelSgd, TheVarianceOfTheMeanFallsWithTheRanksAndABiasDoesNot) {
  constexpr double kBias = 3;
  for (const int ranks : {1, 4, 16}) {
    Quadratic q{.sync = "parallel_sgd", .ranks = ranks, .steps = 400, .sizes = {2000}};
    q.target = [](int rank, std::size_t element) {
      return kBias +
             (codec::philox({static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(element), 1, 2}, 3, 4)[0] % 2 == 0 ? 1 : -1);
    };
    const Values found = train(q).consensus[0];
    double mean = 0, squared = 0;
    for (const double x : found) {
      mean += x / 2000;
      squared += (x - kBias) * (x - kBias) / 2000;
    }
    EXPECT_NEAR(mean, kBias, 0.12) << ranks << " ranks";
    EXPECT_NEAR(squared * ranks, 1, 0.2) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace cohort::sync
