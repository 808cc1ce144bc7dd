#include "cohort/net/transport/faulty.h"

#include <bit>

#include "cohort/net/transport/conformance.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::net {
namespace {

AllPeerLinks faulty_world(int ranks, const FaultPlan& plan) {
  AllPeerLinks world;
  for (auto& links : loopback_world(ranks)) world.push_back(faulty_peer_links(std::move(links), plan));
  return world;
}

struct FaultyWithoutFaults {
  static AllPeerLinks make(int ranks) { return faulty_world(ranks, {}); }
};
struct FaultyWithDelays {
  static AllPeerLinks make(int ranks) { return faulty_world(ranks, {.seed = 1, .delay = 0.05, .delay_span = 1ms}); }
};
INSTANTIATE_TEST_SUITE_P(FaultyWithoutFaults, Conformance, testing::Values(Factory{FaultyWithoutFaults::make}));
INSTANTIATE_TEST_SUITE_P(FaultyWithDelays, Conformance, testing::Values(Factory{FaultyWithDelays::make}));

TEST(Faulty, DecidesBySeedLinkAndNumberAlone) {
  const FaultPlan plan{.seed = 42, .delay = 0.5, .drop = 0.25, .corrupt = 0.125};
  FaultPlan other = plan;
  other.seed = 43;
  int drops = 0, corrupts = 0, delays = 0, same = 0;
  for (std::uint64_t n = 0; n < 10'000; ++n) {
    const PlannedFault f = planned_fault(plan, Rank{0}, Rank{1}, n), again = planned_fault(plan, Rank{0}, Rank{1}, n),
                       theirs = planned_fault(other, Rank{0}, Rank{1}, n);
    EXPECT_TRUE(f.drop == again.drop && f.corrupt == again.corrupt && f.delay == again.delay && f.bit == again.bit);
    drops += f.drop;
    corrupts += f.corrupt;
    delays += f.delay > Seconds{0};
    same += f.drop == theirs.drop;
    EXPECT_LE(f.delay, plan.delay_span);
  }
  EXPECT_NEAR(drops, 2500, 200);
  EXPECT_NEAR(corrupts, 1250, 150);
  EXPECT_NEAR(delays, 5000, 250);
  EXPECT_LT(same, 7500);
}

TEST(Faulty, DropsTheSameMessagesInEveryRun) {
  const FaultPlan plan{.seed = 7, .drop = 0.5};
  std::vector<std::vector<std::uint32_t>> runs;
  for (int run = 0; run < 2; ++run) {
    const AllPeerLinks world = faulty_world(2, plan);
    for (std::uint32_t i = 0; i < 50; ++i) send_now(*world[0], 1, bytes_of(i), {0, i});
    runs.emplace_back();
    for (Error error{}; error.kind != Kind::timeout;)
      error = failure_of([&] { runs.back().push_back(world[1]->next({0, 0, 99}, Deadline::in(10ms)).tag.number); });
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_GT(runs[0].size(), 10U);
  EXPECT_LT(runs[0].size(), 40U);
}

TEST(Faulty, LetsTheReceiverOfADroppedMessageTimeOut) {
  const AllPeerLinks world = faulty_world(2, {.drop = 1});
  send_now(*world[0], 1, pattern(8, 1), {0, 1});
  std::vector<std::byte> buffer(8);
  EXPECT_EQ(failure_of([&] { world[1]->link(Rank{0}).recv(buffer, {0, 1}).wait(Deadline::in(20ms)); }).kind, Kind::timeout);
  EXPECT_FALSE(world[1]->failure(Rank{0}));
}

TEST(Faulty, FlipsExactlyOneBit) {
  const AllPeerLinks world = faulty_world(2, {.seed = 3, .corrupt = 1});
  const auto data = pattern(1000, 1);
  for (std::uint32_t i = 0; i < 20; ++i) {
    send_now(*world[0], 1, data, {0, i});
    const auto got = recv_now(*world[1], 0, 1000, {0, i});
    int flipped = 0;
    for (std::size_t b = 0; b < data.size(); ++b) flipped += std::popcount(std::to_integer<unsigned>(data[b] ^ got[b]));
    EXPECT_EQ(flipped, 1);
  }
  send_now(*world[0], 1, {}, {1, 0});
  EXPECT_TRUE(recv_now(*world[1], 0, 0, {1, 0}).empty());
}

TEST(Faulty, CutsALinkAfterSoManyMessages) {
  const AllPeerLinks world = faulty_world(3, {.cut_after = 2, .peers = {Rank{1}}});
  for (std::uint32_t i = 0; i < 2; ++i) send_now(*world[0], 1, bytes_of(i), {0, i});
  const Error error = failure_of([&] { send_now(*world[0], 1, pattern(4, 1), {0, 2}); });
  EXPECT_EQ(error.kind, Kind::peer_lost);
  EXPECT_THAT(error.what, ::testing::HasSubstr("cut after 2 messages"));
  EXPECT_EQ(failure_of([&] { recv_now(*world[0], 1, 4, {0, 9}); }).what, error.what);
  for (std::uint32_t i = 0; i < 5; ++i) send_now(*world[0], 2, bytes_of(i), {0, i});  // not in the plan
  EXPECT_FALSE(world[0]->failure(Rank{2}));
}

TEST(Faulty, DelaysButDelivers) {
  const AllPeerLinks world = faulty_world(2, {.seed = 5, .delay = 1, .delay_span = 20ms});
  const auto begin = Clock::now();
  Seconds planned{0};
  for (std::uint32_t i = 0; i < 5; ++i) {
    planned += planned_fault({.seed = 5, .delay = 1, .delay_span = 20ms}, Rank{0}, Rank{1}, i).delay;
    send_now(*world[0], 1, bytes_of(i), {0, i});
    EXPECT_EQ(recv_now(*world[1], 0, 4, {0, i}).size(), 4U);
  }
  EXPECT_GE(Seconds(Clock::now() - begin), planned);
}

TEST(Faulty, SharesMemoryOnlyWithoutFaults) {
  EXPECT_TRUE(faulty_world(1, {})[0]->shares_memory());
  EXPECT_FALSE(faulty_world(1, {.drop = 0.1})[0]->shares_memory());
  EXPECT_EQ(failure_of([] { faulty_world(1, {.drop = 1.5}); }).kind, Kind::usage);
}

TEST(Faulty, LeavesTheLinkToOneselfAlone) {
  const AllPeerLinks world = faulty_world(1, {.drop = 1});
  send_now(*world[0], 0, pattern(8, 1), {0, 1});
  EXPECT_EQ(recv_now(*world[0], 0, 8, {0, 1}), pattern(8, 1));
}

}  // namespace
}  // namespace cohort::net
