// The claims of conformance.h about failures, aborts and peers that leave. Compiled once for all transports.
#include "cohort/net/transport/conformance.h"
#include "cohort/net/transport/transport_base.h"

namespace cohort::net {
namespace {

TEST_P(Conformance, StaysUsableAfterALengthMismatch) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    const auto data = pattern(300'000, 1);
    for (const std::size_t expected : {10UL, 299'999UL, 300'001UL}) {
      if (links.rank() == Rank{0}) {
        send_now(links, 1, data, {0, 1});
        send_now(links, 1, data, {0, 1});
        continue;
      }
      const Error error = failure_of([&] { recv_now(links, 0, expected, {0, 1}); });
      EXPECT_EQ(error.kind, Kind::corrupt);
      EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("300000"), ::testing::HasSubstr(std::to_string(expected))));
      EXPECT_TRUE(recv_now(links, 0, 300'000, {0, 1}) == data);
    }
  });
}

// A peer may hear of it (tcp), and must not take it for an abort of all links.
TEST_P(Conformance, TheFailureOfOneLinkIsNoAbortToItsPeer) {
  const AllPeerLinks world = make(3);
  world[0]->link(Rank{1}).fail({Kind::corrupt, "bad bytes", Rank{1}});
  send_now(*world[0], 2, pattern(4, 1), {0, 3});
  EXPECT_EQ(recv_now(*world[2], 0, 4, {0, 3}), pattern(4, 1));
  std::vector<std::byte> buffer(4);
  world[1]->await([&] { return world[1]->failure(Rank{0}).has_value(); }, Deadline::in(10ms));
  if (const auto heard = world[1]->failure(Rank{0})) {
    EXPECT_FALSE(aborted_by(Rank{0}, *heard)) << heard->what;
    EXPECT_THAT(heard->what, ::testing::HasSubstr("bad bytes"));
  }
  world[0]->abort({Kind::usage, "enough", Rank{0}});
  ASSERT_TRUE(world[2]->await([&] { return world[2]->failure(Rank{0}).has_value(); }, soon()));
  EXPECT_TRUE(aborted_by(Rank{0}, *world[2]->failure(Rank{0})));
}

TEST_P(Conformance, FailsForGoodWithTheFirstError) {
  const AllPeerLinks world = make(3);
  std::vector<std::byte> buffer(4);
  auto pending = world[0]->link(Rank{1}).recv(buffer, {0, 1});
  auto waiter = std::async(std::launch::async, [&] { return failure_of([&] { pending.wait(soon()); }); });
  world[0]->link(Rank{1}).fail({Kind::corrupt, "first", Rank{1}});
  world[0]->link(Rank{1}).fail({Kind::system, "second", Rank{1}});
  EXPECT_EQ(waiter.get().what, "first");
  EXPECT_EQ(failure_of([&] { world[0]->link(Rank{1}).recv(buffer, {0, 2}).wait(soon()); }).what, "first");
  EXPECT_EQ(failure_of([&] { world[0]->link(Rank{1}).send(buffer, {0, 2}).wait(soon()); }).what, "first");
  ASSERT_TRUE(world[0]->failure(Rank{1}));
  EXPECT_EQ(world[0]->failure(Rank{1})->kind, Kind::corrupt);
  EXPECT_FALSE(world[0]->failure(Rank{2}));
  send_now(*world[0], 2, pattern(4, 1), {0, 3});
  EXPECT_EQ(recv_now(*world[2], 0, 4, {0, 3}), pattern(4, 1));
}

TEST_P(Conformance, SendsTheReasonOfAnAbortToEveryPeer) {
  AllPeerLinks world = make(3);
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() == Rank{1}) {
      links.abort({Kind::usage, "loss is not a number", Rank{1}});
      EXPECT_EQ(failure_of([&] { recv_now(links, 0, 4, {0, 1}); }).what, "loss is not a number");
      return;
    }
    const Error error = failure_of([&] { recv_now(links, 1, 4, {0, 1}); });
    EXPECT_EQ(error.kind, Kind::aborted) << error.what;
    EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr("loss is not a number")));
    EXPECT_THAT(failure_of([&] { links.next({0, 0, 9}, soon()); }).what, ::testing::HasSubstr("loss is not a number"));
  });
}

TEST_P(Conformance, KeepsItsOwnAbortAsTheFailureWhenAPeerLeavesMeanwhile) {
  AllPeerLinks world = make(3);
  world[0]->watch([&](Rank rank, const Error&) {
    if (rank != Rank{1}) return;
    world[2].reset();  // in the middle of the abort: rank 2 has got it, and the link to it is still open
    for (const Deadline limit = Deadline::in(2s); !world[0]->failure(Rank{2}) && !limit.passed();) std::this_thread::sleep_for(1ms);
  });
  world[0]->abort({Kind::usage, "loss is not a number", Rank{0}});
  EXPECT_EQ(world[0]->failure(Rank{2})->what, "loss is not a number");
}

TEST_P(Conformance, FailsPendingCallsWhenAPeerLeaves) {
  AllPeerLinks world = make(3);
  std::atomic<int> waiting{0};
  std::vector<std::future<Error>> waiters;
  for (const std::size_t r : {0UL, 1UL})
    waiters.push_back(std::async(std::launch::async, [&, r] {
      std::vector<std::byte> buffer(4);
      auto pending = world[r]->link(Rank{2}).recv(buffer, {0, 1});
      ++waiting;
      return failure_of([&] { pending.wait(soon()); });
    }));
  while (waiting < 2) std::this_thread::yield();
  world[2].reset();
  for (auto& waiter : waiters) {
    const Error error = waiter.get();
    EXPECT_EQ(error.kind, Kind::peer_lost) << error.what;
    EXPECT_THAT(error.what, ::testing::HasSubstr("rank 2"));
    EXPECT_EQ(error.rank, Rank{2});
  }
  EXPECT_EQ(failure_of([&] { world[0]->next({0, 0, 9}, soon()); }).kind, Kind::peer_lost);
  send_now(*world[0], 1, pattern(9, 1), {0, 3});
  EXPECT_EQ(recv_now(*world[1], 0, 9, {0, 3}), pattern(9, 1));
}

TEST_P(Conformance, DeliversWhatALeavingPeerSentBefore) {
  AllPeerLinks world = make(2);
  for (std::uint32_t i = 0; i < 10; ++i) send_now(*world[1], 0, pattern(i * 40, i), {0, i});
  world[1].reset();
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(recv_now(*world[0], 1, i * 40, {0, i}) == pattern(i * 40, i));
  EXPECT_EQ(world[0]->next({0, 0, 99}, soon()).tag, (Tag{0, 9}));
  EXPECT_EQ(failure_of([&] { recv_now(*world[0], 1, 1, {0, 10}); }).kind, Kind::peer_lost);
}

TEST_P(Conformance, CallsWatchersOncePerFailedPeer) {
  AllPeerLinks world = make(3);
  std::mutex mutex;
  std::vector<int> early, late, never;
  std::promise<void> first;
  const int id = world[0]->watch([&](Rank rank, const Error&) {
    const std::lock_guard lock(mutex);
    early.push_back(rank.value);
    if (rank == Rank{1}) first.set_value();
  });
  const int unwatched = world[0]->watch([&](Rank rank, const Error&) { never.push_back(rank.value); });
  world[0]->unwatch(unwatched);
  world[1].reset();  // detected while nobody waits
  ASSERT_EQ(first.get_future().wait_for(20s), std::future_status::ready);
  world[0]->link(Rank{2}).fail({Kind::corrupt, "first", Rank{2}});
  world[0]->link(Rank{2}).fail({Kind::corrupt, "second", Rank{2}});
  world[0]->watch([&](Rank rank, const Error&) { late.push_back(rank.value); });
  world[0]->unwatch(id);
  EXPECT_THAT(early, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(late, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(never, ::testing::IsEmpty());
}

TEST_P(Conformance, LetsAWatcherAbortTheLinks) {
  AllPeerLinks world = make(3);
  std::promise<std::string> reported;
  world[0]->watch([&](Rank rank, const Error& error) {
    if (rank != Rank{1}) return;  // the abort below fails the others, from inside this very call
    world[0]->abort({Kind::aborted, "giving up: " + error.what, rank});
    reported.set_value(world[0]->failure(Rank{2})->what);
  });
  world[0]->link(Rank{1}).fail({Kind::corrupt, "bad bytes", Rank{1}});
  EXPECT_EQ(reported.get_future().get(), "giving up: bad bytes");
}

TEST_P(Conformance, LetsWatchersOfAllRanksAbortAtOnce) {
  AllPeerLinks world = make(4);
  for (auto& links : world)
    links->watch([m = links.get()](Rank rank, const Error& error) { m->abort({Kind::aborted, "giving up: " + error.what, rank}); });
  on_all_ranks(world, [](PeerLinks& links) {
    links.link(Rank{(links.rank().value + 1) % links.size()}).fail({Kind::corrupt, "bad bytes", kNoRank});
    for (Rank r{0}; r.value < links.size(); ++r.value)
      EXPECT_NE(failure_of([&] { recv_now(links, r.value, 4, {0, 1}); }).kind, Kind::timeout);
  });
}

}  // namespace
}  // namespace cohort::net
