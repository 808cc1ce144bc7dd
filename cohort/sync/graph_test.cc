#include "cohort/sync/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace cohort::sync {
namespace {

std::vector<std::vector<double>> dense(const Mixing& mixing) {
  std::vector<std::vector<double>> all(mixing.size(), std::vector<double>(mixing.size()));
  for (std::size_t i = 0; i < mixing.size(); ++i)
    for (const Neighbour& n : mixing[i]) all[i][static_cast<std::size_t>(n.rank)] = n.weight;
  return all;
}

TEST(Graph, RowsAndColumnsSumToOneAndEveryRankIsReached) {
  for (const auto& name : graph_names())
    for (int ranks = 1; ranks <= 17; ++ranks) {
      const Graph graph = make_graph(name, ranks);
      EXPECT_TRUE(connected(graph)) << name << " of " << ranks;
      EXPECT_LT(contraction(graph), 1 - 1e-3) << name << " of " << ranks;
      for (const Mixing& mixing : graph) {
        const auto weights = dense(mixing);
        for (std::size_t i = 0; i < weights.size(); ++i) {
          double row = 0, column = 0;
          for (std::size_t j = 0; j < weights.size(); ++j) {
            EXPECT_GE(weights[i][j], 0);
            row += weights[i][j];
            column += weights[j][i];
          }
          EXPECT_GT(weights[i][i], 0);
          EXPECT_NEAR(row, 1, 1e-15) << name << " of " << ranks;
          EXPECT_NEAR(column, 1, 1e-15) << name << " of " << ranks;
          EXPECT_TRUE(std::ranges::is_sorted(mixing[i], std::ranges::less_equal{}, &Neighbour::rank)) << "by rank, each once";
        }
      }
    }
}

TEST(Graph, ReadersAreWhoReads) {
  const Mixing mixing = make_graph("exponential", 6)[0];
  EXPECT_THAT(readers(mixing, 5), testing::ElementsAre(0, 1, 3));
  EXPECT_THAT(readers(make_graph("star", 4)[0], 0), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(readers(make_graph("star", 4)[0], 2), testing::ElementsAre(0));
}

TEST(Graph, SaysHowManyModelsARankReceives) {
  EXPECT_EQ(received(make_graph("ring", 2)), 1);
  EXPECT_EQ(received(make_graph("ring", 8)), 2);
  EXPECT_EQ(received(make_graph("torus", 12)), 4);
  EXPECT_EQ(received(make_graph("torus", 7)), 2) << "a ring";
  EXPECT_EQ(received(make_graph("exponential", 8)), 3);
  EXPECT_EQ(received(make_graph("one_peer", 8)), 1);
  EXPECT_EQ(received(make_graph("star", 4)), 1.5);
  EXPECT_EQ(received(make_graph("full", 5)), 4);
}

// (1 + 2 cos(2 pi / n)) / 3; 1 - 2 / (1 + log2 n); 1 - 1/n; of a torus of 3 x 4 the eigenvalue (1 + 2 cos(2 pi k / 3) + 2 cos(2 pi l / 4))
// / 5.
TEST(Graph, TheContractionIsThePublishedOne) {
  const auto of = [](const char* name, int ranks) { return contraction(make_graph(name, ranks)); };
  for (const int ranks : {4, 8, 16, 32}) {
    EXPECT_NEAR(of("ring", ranks), (1 + 2 * std::cos(2 * std::numbers::pi / ranks)) / 3, 1e-9);
    EXPECT_NEAR(of("exponential", ranks), 1 - 2 / (1 + std::log2(ranks)), 1e-9);
    EXPECT_NEAR(of("star", ranks), 1 - 1.0 / ranks, 1e-9);
    EXPECT_NEAR(of("one_peer", ranks), 0, 1e-9) << "a turn is the mean";
  }
  EXPECT_NEAR(of("torus", 12), 0.6, 1e-9);
  EXPECT_NEAR(of("full", 7), 0, 1e-9);
}

TEST(Graph, OfPowersOfTwoOneTurnOfOnePeerIsTheMeanToTheBit) {
  for (const int ranks : {2, 4, 8}) {
    std::vector<double> x;
    for (int r = 0; r < ranks; ++r) x.push_back(8.0 * r);
    const Graph graph = make_graph("one_peer", ranks);
    for (std::int64_t step = 1; step <= static_cast<std::int64_t>(graph.size()); ++step) {
      std::vector<double> mixed;
      for (const auto& row : mixing_of(graph, step)) {
        mixed.push_back(0);
        for (const Neighbour& n : row) mixed.back() += n.weight * x[static_cast<std::size_t>(n.rank)];
      }
      x = mixed;
    }
    for (const double value : x) EXPECT_EQ(value, 4.0 * (ranks - 1));
  }
}

TEST(Graph, StepsTakeMixingsInTurn) {
  const Graph graph = make_graph("one_peer", 8);
  ASSERT_EQ(graph.size(), 3U);
  EXPECT_EQ(&mixing_of(graph, 1), &graph[0]);
  EXPECT_EQ(&mixing_of(graph, 3), &graph[2]);
  EXPECT_EQ(&mixing_of(graph, 4), &graph[0]);
}

}  // namespace
}  // namespace cohort::sync
