#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

// One element on each rank: the formula of the paper, in x, v and c.
TEST(Eamsgd, IsThePapersFormula) {
  constexpr int kSteps = 30;
  constexpr double kRate = 0.25, kCurvature = 0.5, kMomentum = 0.5, kAlpha = 0.8 / 3;
  Quadratic q{
      .sync = "eamsgd(h=2, beta=0.8, momentum=0.5)", .ranks = 3, .steps = kSteps, .rate = kRate, .curvature = kCurvature, .sizes = {1}};
  q.target = [](int rank, std::size_t) { return 4.0 * rank; };
  const QuadraticRun run = train(q);
  double x[3] = {}, v[3] = {}, c = 0;
  for (int step = 1; step <= kSteps; ++step) {
    double sum = 0;
    for (int r = 0; r < 3; ++r) {
      const double gradient = kCurvature * (x[r] + kMomentum * v[r] - 4.0 * r);
      v[r] = kMomentum * v[r] - kRate * gradient;
      x[r] += v[r];
      sum += x[r] - c;
    }
    if (step % 2 == 0) {
      for (double& own : x) own -= kAlpha * (own - c);
      c += kAlpha * sum;
    }
    for (int r = 0; r < 3; ++r)
      EXPECT_NEAR(run.after[static_cast<std::size_t>(r)][static_cast<std::size_t>(step - 1)][0], x[r] + kMomentum * v[r], 1e-12)
          << "step " << step;
  }
  EXPECT_NEAR(run.consensus[1][0], c, 1e-12);
}

TEST(Eamsgd, WithoutMomentumItIsEasgd) {
  Quadratic q{.sync = "easgd(h=3, beta=0.5)", .ranks = 4, .steps = 15, .rate = 0.1, .curvature = 0.7};
  const QuadraticRun expected = train(q);
  q.sync = "eamsgd(h=3, beta=0.5, momentum=0)";
  const QuadraticRun found = train(q);
  for (std::size_t r = 0; r < 4; ++r) {
    expect_near(found.models[r], expected.models[r], 1e-13);
    expect_near(found.consensus[r], expected.consensus[r], 1e-13);
  }
}

// Without momentum, as in the paper: with it x goes on by itself, which is no exchange.
TEST(Eamsgd, RoundsChangeNothingOfTheSumOfCentreAndRanks) {
  Quadratic q{.sync = "eamsgd(h=1, beta=0.5, momentum=0)", .ranks = 4, .steps = 9, .curvature = 0, .sizes = {20}};
  q.begins = [](int, std::size_t element) { return static_cast<double>(element); };
  collective::run_ranks(4, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    fill(rank.bucket().parameters(), 16.0 * comm.rank().value);  // an update of each rank's own
    for (int step = 1; step <= 9; ++step) rank.step(step);
    Values sum = rank.model();
    comm.all_reduce(collective::piece(std::span(sum)), collective::Op::sum);
    const Values centre = rank.consensus();
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(sum[i] + centre[i], 96 + static_cast<double>(i));
  });
}

TEST(Eamsgd, ARankWithoutUpdatesGoesOnByMomentum) {
  Quadratic q{.sync = "eamsgd(h=100, momentum=0.5)", .ranks = 1, .steps = 3, .curvature = 0, .sizes = {1}};
  collective::run_ranks(1, [&](collective::Communicator& comm) {
    QuadraticRank rank(q, comm);
    fill(rank.bucket().parameters(), 8);  // the update: v = 8, x = 8, y = 12; then v = 4, x = 12, y = 14
    rank.step(1);
    EXPECT_EQ(rank.model()[0], 12);
    rank.step(2);
    EXPECT_EQ(rank.model()[0], 14);
  });
}

}  // namespace
}  // namespace cohort::sync
