#include "cohort/base/failure_of.h"
#include "cohort/sync/gossip.h"
#include "cohort/sync/testing.h"

namespace cohort::sync {
namespace {

TEST(HierarchicalGossip, HostsMixTheMeansOfTheirRanks) {
  for (const char* graph : {"exponential", "one_peer"}) {
    Quadratic q{.sync = std::string("hierarchical_gossip(per_host=2, graph=") + graph + ")", .ranks = 8, .steps = 3, .curvature = 0};
    q.begins = [](int rank, std::size_t element) { return 16.0 * rank + static_cast<double>(element % 4); };
    const QuadraticRun run = train(q);
    std::vector<double> hosts{8, 40, 72, 104};
    for (std::int64_t step = 1; step <= 3; ++step) {
      std::vector<double> mixed(4);
      const Graph of_hosts = make_graph(graph, 4);
      for (std::size_t h = 0; h < 4; ++h)
        for (const Neighbour& n : mixing_of(of_hosts, step)[h]) mixed[h] += n.weight * hosts[static_cast<std::size_t>(n.rank)];
      hosts = mixed;
      for (std::size_t r = 0; r < 8; ++r) {
        const Values& model = run.after[r][static_cast<std::size_t>(step - 1)];
        EXPECT_NEAR(model[6], hosts[r / 2] + 2, 1e-12) << graph << ", rank " << r;
        EXPECT_EQ(model, run.after[r / 2 * 2][static_cast<std::size_t>(step - 1)]) << "ranks of a host have the same";
      }
    }
    EXPECT_NEAR(mean_of(run.models)[0], 56, 1e-12);
  }
}

TEST(HierarchicalGossip, OnOneHostItIsAllReduce) {
  Quadratic q{.sync = "all_reduce", .ranks = 4, .steps = 4};
  const auto expected = train(q).models;
  q.sync = "hierarchical_gossip(per_host=4)";
  EXPECT_EQ(train(q).models, expected);
}

TEST(HierarchicalGossip, MovesLessOverTheNetworkTheMoreRanksAHostHas) {
  for (const int per_host : {1, 2, 3, 6}) {
    const std::string sync = "hierarchical_gossip(per_host=" + std::to_string(per_host) + ")";
    const Quadratic q{.sync = sync, .ranks = 6, .steps = 4, .sizes = {96}};
    EXPECT_NEAR(train(q).moved / q.steps, make(sync)->cost(96, 6), 1e-9) << sync;
  }
}

TEST(HierarchicalGossip, HostsOfOtherNumbersOfRanksAreRefused) {
  EXPECT_THAT(failure_of([] { train({.sync = "hierarchical_gossip(per_host=2)", .ranks = 3}); }).what,
              testing::HasSubstr("3 ranks are not hosts of 2"));
}

}  // namespace
}  // namespace cohort::sync
