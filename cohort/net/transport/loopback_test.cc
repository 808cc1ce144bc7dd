#include "cohort/net/transport/loopback.h"

#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

struct Loopback {
  static AllPeerLinks make(int ranks) { return loopback_world(ranks, Epoch{7}); }
};
INSTANTIATE_TEST_SUITE_P(Loopback, Conformance, testing::Values(Factory{Loopback::make}));

TEST(Loopback, ReportsItsProperties) {
  const auto world = loopback_world(1, Epoch{7});
  EXPECT_EQ(world[0]->transport(), "loopback");
  EXPECT_EQ(world[0]->epoch(), Epoch{7});
  EXPECT_TRUE(world[0]->shares_memory());
}

TEST(Loopback, NamesTheRankThatLeft) {
  auto world = loopback_world(2);
  world[1].reset();
  EXPECT_EQ(world[0]->failure(Rank{1})->what, "rank 1 left");
  EXPECT_EQ(failure_of([&] { send_now(*world[0], 1, pattern(4, 1), {0, 0}); }).kind, Kind::peer_lost);
}

}  // namespace
}  // namespace cohort::net
