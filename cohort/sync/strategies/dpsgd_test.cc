#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/sync/graph.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

Quadratic without_gradients(const std::string& sync, int ranks, int steps) {
  Quadratic q{.sync = sync, .ranks = ranks, .steps = steps, .curvature = 0, .sizes = {40}};
  q.begins = [ranks](int rank, std::size_t) { return std::cos(2 * M_PI * rank / ranks); };  // the mode that shrinks the slowest on a ring
  return q;
}

// The disagreement that shrinks the slowest, on each graph of so many ranks.
struct SlowMode {
  const char* graph;
  int ranks;
  double (*begins)(int rank);
};

TEST(Dpsgd, WithoutGradientsDisagreementShrinksByTheSecondEigenvalueAndTheMeanStays) {
  const SlowMode modes[] = {{"ring", 4, [](int r) { return std::cos(2 * M_PI * r / 4); }},
                            {"ring", 6, [](int r) { return std::cos(2 * M_PI * r / 6); }},
                            {"ring", 8, [](int r) { return std::cos(2 * M_PI * r / 8); }},
                            {"torus", 6, [](int r) { return r < 3 ? 1.0 : -1.0; }},
                            {"exponential", 8, [](int r) { return r % 2 == 0 ? 1.0 : -1.0; }},
                            {"star", 5, [](int r) { return r == 1 ? 1.0 : r == 2 ? -1.0 : 0.0; }}};
  for (const SlowMode& mode : modes) {
    Quadratic q = without_gradients(std::string("dpsgd(graph=") + mode.graph + ")", mode.ranks, 5);
    q.begins = [&](int rank, std::size_t) { return mode.begins(rank); };
    const QuadraticRun run = train(q);
    const double lambda = contraction(make_graph(mode.graph, mode.ranks));
    for (int step = 2; step <= 5; ++step)
      EXPECT_NEAR(disagreement(models_after(run, step)) / disagreement(models_after(run, step - 1)), lambda, 1e-9)
          << mode.graph << " of " << mode.ranks;
    expect_near(mean_of(run.models), Values(40, 0), 1e-12, "the mean");
  }
}

TEST(Dpsgd, OnePeerAtATimeATurnOfPowersOfTwoIsTheMeanToTheBit) {
  Quadratic q = without_gradients("dpsgd(graph=one_peer)", 8, 3);
  q.begins = [](int rank, std::size_t element) { return 8.0 * rank + static_cast<double>(element % 4); };
  const QuadraticRun run = train(q);
  for (const Values& model : run.models)
    for (std::size_t i = 0; i < model.size(); ++i) ASSERT_EQ(model[i], 28 + static_cast<double>(i % 4));
  EXPECT_EQ(run.moved / 3, make(q.sync)->cost(40, 8));
}

TEST(Dpsgd, EveryGraphMovesWhatItSays) {
  for (const auto& graph : graph_names())
    for (const int ranks : {2, 5}) {
      const std::string sync = "dpsgd(graph=" + graph + ")";
      const int steps = 6;  // whole turns
      EXPECT_NEAR(train({.sync = sync, .ranks = ranks, .steps = steps, .sizes = {64}}).moved / steps, make(sync)->cost(64, ranks), 1e-9)
          << sync;
    }
}

TEST(Dpsgd, TakesWeightsFromAFile) {
  const TempDir folder;
  write_file_atomically(folder.file("w.txt"), "1/2 1/2 0\n1/2 1/4 1/4\n0 1/4 3/4\n");
  const std::string sync = "dpsgd(file=\"" + folder.file("w.txt") + "\")";
  Quadratic q = without_gradients(sync, 3, 1);
  q.begins = [](int rank, std::size_t) { return 8.0 * rank; };
  const QuadraticRun run = train(q);
  EXPECT_EQ(run.models[0][0], 4);
  EXPECT_EQ(run.models[1][0], 6);
  EXPECT_EQ(run.models[2][0], 14);
  EXPECT_NEAR(run.moved, 40 * 4.0 / 3, 1e-9);
  q.ranks = 2;
  EXPECT_THAT(failure_of([&] { train(q); }).what, testing::HasSubstr("weights for 3 ranks, where there are 2"));
  write_file_atomically(folder.file("w.txt"), "1 0\n0.5 0.5\n");
  EXPECT_THAT(failure_of([&] { make(sync); }).what, testing::HasSubstr("take of rank 0 sums to 1.5"));
}

TEST(Dpsgd, RanksWithOtherFilesAreRefusedOnAll) {
  const TempDir folder;
  write_file_atomically(folder.file("0"), "1/2 1/2\n1/2 1/2\n");
  write_file_atomically(folder.file("1"), "1/4 3/4\n3/4 1/4\n");
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    const auto strategy = make("dpsgd(file=\"" + folder.file(std::to_string(comm.rank().value)) + "\")");
    Site site{comm, {}};
    EXPECT_THAT(failure_of([&] { strategy->open(site); }).what, testing::HasSubstr("rank 1 has read other weights"));
  });
}

TEST(Dpsgd, OnAFullGraphOneStepIsTheMean) {
  const QuadraticRun run = train(without_gradients("dpsgd(graph=full)", 4, 1));
  for (const Values& model : run.models) expect_near(model, Values(40, 0), 1e-15);
}

// The mean moves by the mean of the gradients of the ranks' own models: on quadratics as with all-reduce.
TEST(Dpsgd, TheMeanOfQuadraticsIsThatOfAllReduce) {
  for (const char* sync : {"dpsgd(graph=ring)", "dpsgd(graph=full)", "dpsgd(graph=star)", "dpsgd(graph=one_peer)"}) {
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
