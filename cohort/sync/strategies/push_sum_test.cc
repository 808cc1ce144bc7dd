#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/sync/graph_file.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

// Directed, two in turn; columns sum to 1, lines do not: ranks 0 and 2 hear more than they say.
constexpr const char* kUneven = R"(
1/2 1/4 1/2 0
1/4 3/4 0   0
0   0   1/2 1/2
1/4 0   0   1/2

1/2 0   0   1/2
0   1/2 1/4 0
1/2 1/2 3/4 0
0   0   0   1/2
)";

class PushSum : public testing::Test {
 protected:
  PushSum() { write_file_atomically(folder_.file("w.txt"), kUneven); }
  std::string uneven() const { return "push_sum(file=\"" + folder_.file("w.txt") + "\")"; }

 private:
  const TempDir folder_;
};

// z_i and w_i by the formula, in a world without a network; update() is gradient descent.
struct Model {
  std::vector<double> x, w;
  double z(std::size_t r) const { return x[r] / w[r]; }
  void mix(const Mixing& mixing) {
    const Model before = *this;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = w[i] = 0;
      for (const Neighbour& n : mixing[i]) {
        x[i] += n.weight * before.x[static_cast<std::size_t>(n.rank)];
        w[i] += n.weight * before.w[static_cast<std::size_t>(n.rank)];
      }
    }
  }
};

TEST_F(PushSum, SumsOfModelsAndWeightsAreConservedToTheBitOnDirectedGraphs) {
  collective::run_ranks(4, [&](collective::Communicator& comm) {
    Quadratic q{.sync = uneven(), .ranks = 4, .curvature = 0, .sizes = {9, 30}};
    q.begins = [](int rank, std::size_t element) { return 16.0 * rank + static_cast<double>(element % 5); };
    QuadraticRank rank(q, comm);
    for (int step = 1; step <= 12; ++step) {
      rank.step(step);
      Values sums = values_of(rank.bucket(), rank.bucket().slot("sum"));
      Values weights(doubles(rank.bucket().slot("weight")), doubles(rank.bucket().slot("weight")) + 2);
      if (comm.rank() == Rank{0}) EXPECT_TRUE(step < 4 || weights[0] != 1);
      comm.all_reduce(collective::piece(std::span(sums)), collective::Op::sum);  // of dyadic numbers: exact
      comm.all_reduce(collective::piece(std::span(weights)), collective::Op::sum);
      ASSERT_EQ(sums.size(), 39U);
      for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 96 + 4 * static_cast<double>(i % 5)) << "step " << step;
      EXPECT_EQ(weights[1], 4);
    }
  });
}

TEST_F(PushSum, ModelsGoToTheMeanWherePlainGossipGoesElsewhere) {
  Quadratic q{.sync = uneven(), .ranks = 4, .steps = 120, .curvature = 0, .sizes = {3}};
  q.begins = [](int rank, std::size_t) { return 8.0 * rank; };
  const QuadraticRun run = train(q);
  for (const Values& model : run.models) expect_near(model, Values(3, 12), 1e-9);
  expect_near(run.consensus[2], Values(3, 12), 1e-13);
  Model plain{{0, 8, 16, 24}, {1, 1, 1, 1}};
  for (int step = 1; step <= 120; ++step) plain.mix(mixing_of(parse_graph(kUneven, "w", Stochastic::columns), step));
  EXPECT_GT(std::abs(plain.x[0] - 12), 0.5) << "without weights";
}

TEST_F(PushSum, IsTheFormula) {
  Quadratic q{.sync = uneven(), .ranks = 4, .steps = 7, .rate = 0.25, .curvature = 0.5, .sizes = {1}};
  q.target = [](int rank, std::size_t) { return 4.0 * rank; };
  const QuadraticRun run = train(q);
  Model model{{0, 0, 0, 0}, {1, 1, 1, 1}};
  const Graph graph = parse_graph(kUneven, "w", Stochastic::columns);
  for (int step = 1; step <= 7; ++step) {
    for (std::size_t r = 0; r < 4; ++r) model.x[r] -= 0.125 * (model.z(r) - 4.0 * static_cast<double>(r));
    model.mix(mixing_of(graph, step));
    for (std::size_t r = 0; r < 4; ++r) EXPECT_NEAR(run.after[r][static_cast<std::size_t>(step - 1)][0], model.z(r), 1e-13);
  }
}

TEST_F(PushSum, ResumesWithItsWeights) {
  Quadratic q{.sync = uneven(), .ranks = 4, .steps = 9, .rate = 0.1, .curvature = 0.7};
  const QuadraticRun whole = train(q);
  for (q.resumes_after = 1; q.resumes_after < 9; ++q.resumes_after) EXPECT_EQ(train(q).models, whole.models) << q.resumes_after;
}

TEST_F(PushSum, MovesAModelAndANumberATensorForEachItHears) {
  const Quadratic q{.sync = uneven(), .ranks = 4, .steps = 10, .sizes = {64, 32}};
  EXPECT_EQ(received(parse_graph(kUneven, "w", Stochastic::columns)), 9.0 / 8);
  EXPECT_NEAR(train(q).moved / q.steps, make(q.sync)->cost(96, 4) + 2 * 9.0 / 8, 1e-9);
}

TEST_F(PushSum, AFileWhoseColumnsLoseSomethingIsRefused) {
  const TempDir folder;
  write_file_atomically(folder.file("w"), "0.5 0.5\n0.25 0.5\n");
  EXPECT_THAT(failure_of([&] { make("push_sum(file=\"" + folder.file("w") + "\")"); }).what, testing::HasSubstr("sums to 0.75"));
}

}  // namespace
}  // namespace cohort::sync
