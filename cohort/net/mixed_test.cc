#include "cohort/net/mixed.h"

#include "cohort/net/conformance.h"

namespace cohort::net {
namespace {

// Two ranks a host, the last one alone when their number is odd.
struct Pairs {
  static Meshes make(int ranks) {
    std::vector<int> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(r / 2);
    return mixed_meshes(hosts, Epoch{7});
  }
};
// Neighbours are never on one host.
struct Alternating {
  static Meshes make(int ranks) {
    std::vector<int> hosts;
    for (int r = 0; r < ranks; ++r) hosts.push_back(r % 2);
    return mixed_meshes(hosts, Epoch{7});
  }
};
INSTANTIATE_TEST_SUITE_P(MixedPairs, Conformance, testing::Values(Factory{Pairs::make}));
INSTANTIATE_TEST_SUITE_P(MixedAlternating, Conformance, testing::Values(Factory{Alternating::make}));

TEST(MixedMesh, CarriesManySizesBetweenAllPairsInOddSplits) {
  const std::vector<std::vector<int>> splits{{0, 0, 1}, {0, 0, 0, 1, 1}, {0, 1, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1, 2}, {2, 0, 1, 0, 2}};
  for (const auto& hosts : splits) {
    Meshes meshes = mixed_meshes(hosts);
    on_all_ranks(meshes, [&](Mesh& mesh) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 70'000UL, 600'001UL}) {
        std::vector<std::vector<std::byte>> got(hosts.size(), std::vector<std::byte>(bytes));
        const auto mine = pattern(bytes, static_cast<unsigned>(mesh.rank().value));
        std::vector<Pending> pending;
        for (int r = 0; r < mesh.size(); ++r) pending.push_back(mesh.link(Rank{r}).recv(got[static_cast<std::size_t>(r)], {1, 2}));
        for (int r = 0; r < mesh.size(); ++r) pending.push_back(mesh.link(Rank{r}).send(mine, {1, 2}));
        for (auto& p : pending) p.wait(soon());
        for (std::size_t r = 0; r < hosts.size(); ++r) ASSERT_EQ(got[r], pattern(bytes, static_cast<unsigned>(r)));
      }
    });
  }
}

TEST(MixedMesh, SaysWhoLivesOnWhichHost) {
  const Meshes meshes = mixed_meshes({0, 1, 1, 0});
  for (const auto& mesh : meshes) {
    EXPECT_FALSE(mesh->shares_memory());
    EXPECT_EQ(mesh->host(Rank{0}), mesh->host(Rank{3}));
    EXPECT_EQ(mesh->host(Rank{1}), mesh->host(Rank{2}));
    EXPECT_NE(mesh->host(Rank{0}), mesh->host(Rank{1}));
  }
}

// A thread that waits for a peer of its own host moves the bytes that a peer of another host waits for.
TEST(MixedMesh, AWaitInsideAHostDoesNotHoldUpBytesBetweenHosts) {
  Meshes meshes = mixed_meshes({0, 0, 1});
  const auto large = pattern(32_MiB, 5);  // more than sockets take at once
  on_all_ranks(meshes, [&](Mesh& mesh) {
    if (mesh.rank() == Rank{0}) {
      Pending sending = mesh.link(Rank{2}).send(large, {0, 1});
      EXPECT_EQ(recv_now(mesh, 1, 1, {0, 2}).size(), 1u);  // comes only after rank 2 has it all
      sending.wait(soon());
    } else if (mesh.rank() == Rank{2}) {
      EXPECT_EQ(recv_now(mesh, 0, large.size(), {0, 1}), large);
      send_now(mesh, 1, pattern(1, 1), {0, 3});
    } else {
      recv_now(mesh, 2, 1, {0, 3});
      send_now(mesh, 0, pattern(1, 1), {0, 2});
    }
  });
}

}  // namespace
}  // namespace cohort::net
