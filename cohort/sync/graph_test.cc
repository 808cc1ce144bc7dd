#include "cohort/sync/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace cohort::sync {
namespace {

TEST(Graph, WeightsAreSymmetricAndSumToOne) {
  for (const auto& graph : graph_names())
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::map<std::pair<int, int>, double> weights;
      for (int me = 0; me < ranks; ++me) {
        double sum = 0;
        int before = -1;
        for (const Neighbour& n : neighbours(graph, me, ranks)) {
          EXPECT_GT(n.rank, before) << "by rank, each once";
          before = n.rank;
          sum += n.weight;
          weights[{me, n.rank}] = n.weight;
        }
        EXPECT_NEAR(sum, 1, 1e-15) << graph << " of " << ranks;
      }
      for (const auto& [edge, weight] : weights) EXPECT_EQ(weight, weights.at({edge.second, edge.first}));
    }
}

TEST(Graph, TheContractionOfARingIsThePublishedOne) {
  EXPECT_NEAR(contraction("ring", 4), 0.3333, 1e-4);
  EXPECT_NEAR(contraction("ring", 8), 0.8047, 1e-4);
  EXPECT_NEAR(contraction("ring", 16), 0.9493, 1e-4);
  EXPECT_EQ(contraction("full", 7), 0);
}

}  // namespace
}  // namespace cohort::sync
