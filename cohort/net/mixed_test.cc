#include "cohort/net/mixed.h"

#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

// Two ranks a host, the last one alone when their number is odd.
struct Pairs {
  static AllPeerLinks make(int ranks) {
    std::vector<int> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(r / 2);
    return mixed_world(hosts, Epoch{7});
  }
};
// Neighbours are never on one host.
struct Alternating {
  static AllPeerLinks make(int ranks) {
    std::vector<int> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(r % 2);
    return mixed_world(hosts, Epoch{7});
  }
};
INSTANTIATE_TEST_SUITE_P(MixedPairs, Conformance, testing::Values(Factory{Pairs::make}));
INSTANTIATE_TEST_SUITE_P(MixedAlternating, Conformance, testing::Values(Factory{Alternating::make}));

TEST(MixedTransport, CarriesManySizesBetweenAllPairsInOddSplits) {
  const std::vector<std::vector<int>> splits{{0, 0, 1}, {0, 0, 0, 1, 1}, {0, 1, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1, 2}, {2, 0, 1, 0, 2}};
  for (const auto& hosts : splits) {
    AllPeerLinks world = mixed_world(hosts);
    on_all_ranks(world, [&](PeerLinks& links) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 70'000UL, 600'001UL}) {
        std::vector<std::vector<std::byte>> got(hosts.size(), std::vector<std::byte>(bytes));
        const auto mine = pattern(bytes, static_cast<unsigned>(links.rank().value));
        std::vector<Pending> pending;
        for (int r = 0; r < links.size(); ++r) pending.push_back(links.link(Rank{r}).recv(got[static_cast<std::size_t>(r)], {1, 2}));
        for (int r = 0; r < links.size(); ++r) pending.push_back(links.link(Rank{r}).send(mine, {1, 2}));
        for (auto& p : pending) p.wait(soon());
        for (std::size_t r = 0; r < hosts.size(); ++r) ASSERT_EQ(got[r], pattern(bytes, static_cast<unsigned>(r)));
      }
    });
  }
}

TEST(MixedTransport, ReportsTheHostOfEveryRank) {
  const AllPeerLinks world = mixed_world({0, 1, 1, 0});
  for (const auto& links : world) {
    EXPECT_FALSE(links->shares_memory());
    EXPECT_EQ(links->host(Rank{0}), links->host(Rank{3}));
    EXPECT_EQ(links->host(Rank{1}), links->host(Rank{2}));
    EXPECT_NE(links->host(Rank{0}), links->host(Rank{1}));
  }
}

// A thread that waits for a peer of its own host sends the bytes that a peer of another host waits for.
TEST(MixedTransport, AWaitInsideAHostDoesNotHoldUpBytesBetweenHosts) {
  AllPeerLinks world = mixed_world({0, 0, 1});
  const auto large = pattern(32_MiB, 5);  // more than sockets take at once
  on_all_ranks(world, [&](PeerLinks& links) {
    if (links.rank() == Rank{0}) {
      Pending sending = links.link(Rank{2}).send(large, {0, 1});
      EXPECT_EQ(recv_now(links, 1, 1, {0, 2}).size(), 1u);  // sent only after rank 2 has all of it
      sending.wait(soon());
    } else if (links.rank() == Rank{2}) {
      EXPECT_EQ(recv_now(links, 0, large.size(), {0, 1}), large);
      send_now(links, 1, pattern(1, 1), {0, 3});
    } else {
      recv_now(links, 2, 1, {0, 3});
      send_now(links, 0, pattern(1, 1), {0, 2});
    }
  });
}

}  // namespace
}  // namespace cohort::net
