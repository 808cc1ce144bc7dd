#include "cohort/net/loopback.h"

#include "cohort/net/conformance.h"

namespace cohort::net {
namespace {

struct Loopback {
  static Meshes make(int ranks) { return loopback_meshes(ranks, Epoch{7}); }
};
INSTANTIATE_TEST_SUITE_P(Loopback, Conformance, testing::Values(Factory{Loopback::make}));

TEST(Loopback, SaysWhatItIs) {
  const auto meshes = loopback_meshes(1, Epoch{7});
  EXPECT_EQ(meshes[0]->transport(), "loopback");
  EXPECT_EQ(meshes[0]->epoch(), Epoch{7});
  EXPECT_TRUE(meshes[0]->shares_memory());
}

TEST(Loopback, NamesTheRankThatLeft) {
  auto meshes = loopback_meshes(2);
  meshes[1].reset();
  EXPECT_EQ(meshes[0]->failure(Rank{1})->what, "rank 1 left");
  EXPECT_EQ(failure_of([&] { send_now(*meshes[0], 1, pattern(4, 1), {0, 0}); }).kind, Kind::peer_lost);
}

}  // namespace
}  // namespace cohort::net
