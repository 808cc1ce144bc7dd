// The claims of conformance.h about waiting: deadlines, threads, progress, memory. Compiled once for all transports.
#include "cohort/net/transport/conformance.h"

namespace cohort::net {
namespace {

TEST_P(Conformance, ServesManyThreadsOnOneLink) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    std::vector<std::future<void>> threads;
    for (std::uint32_t t = 0; t < 6; ++t)
      threads.push_back(std::async(std::launch::async, [&links, t] {
        const int peer = 1 - links.rank().value;
        for (std::uint32_t i = 0; i < 40; ++i) {
          const auto data = pattern((t * 7919 + i * 997) % 30'000, t * 1000 + i);
          std::vector<std::byte> got(data.size());
          auto receiving = links.link(Rank{peer}).recv(got, {t, i});
          links.link(Rank{peer}).send(data, {t, i}).wait(soon());
          receiving.wait(soon());
          ASSERT_TRUE(got == data);
        }
      }));
    for (auto& thread : threads) thread.get();
  });
}

TEST_P(Conformance, TakesTheNextMessageFromAnyPeer) {
  AllPeerLinks world = make(4);
  on_all_ranks(world, [](PeerLinks& links) {
    constexpr std::uint32_t kEach = 20;
    if (links.rank() != Rank{0}) {
      for (std::uint32_t i = 0; i < kEach; ++i)
        send_now(links, 0, pattern(i * 100, static_cast<unsigned>(links.rank().value)), {3, 10 + i});
      return;
    }
    std::vector<std::uint32_t> seen(4, 0);
    for (std::uint32_t i = 0; i < 3 * kEach; ++i) {
      const Message m = links.next({3, 10, 10 + kEach}, soon());
      const auto from = static_cast<std::size_t>(m.from.value);
      ASSERT_EQ(m.tag, (Tag{3, 10 + seen[from]})) << "from rank " << from;
      EXPECT_TRUE(m.bytes == pattern(seen[from] * 100, static_cast<unsigned>(from)));
      ++seen[from];
    }
    EXPECT_THAT(seen, ::testing::ElementsAre(0, kEach, kEach, kEach));
  });
}

TEST_P(Conformance, NextLeavesOtherTagsAlone) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() == Rank{0}) {
      for (const std::uint32_t number : {1U, 2U, 3U}) send_now(links, 1, bytes_of(number), {0, number});
      return;
    }
    EXPECT_EQ(links.next({0, 3, 9}, soon()).tag, (Tag{0, 3}));
    EXPECT_EQ(links.next({0, 2, 9}, soon()).tag, (Tag{0, 2}));
    EXPECT_EQ(failure_of([&] { links.next({0, 2, 9}, Deadline::in(10ms)); }).kind, Kind::timeout);
    EXPECT_EQ(recv_now(links, 0, 4, {0, 1}).size(), 4U);
  });
}

TEST_P(Conformance, EndsAWaitAtItsDeadlineAndStaysUsable) {
  AllPeerLinks world = make(2);
  std::vector<std::byte> buffer(4);
  const auto begin = Clock::now();
  const Error error = failure_of([&] { world[0]->link(Rank{1}).recv(buffer, {4, 23}).wait(Deadline::in(50ms)); });
  const Seconds took = Clock::now() - begin;
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr("tag 4:23")));
  EXPECT_GE(took.count(), 0.05);
  EXPECT_LT(took.count(), 5);
  EXPECT_EQ(failure_of([&] { world[0]->next({4, 0, 99}, Deadline::in(10ms)); }).kind, Kind::timeout);
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() == Rank{1}) send_now(links, 0, pattern(4, 9), {4, 23});
    if (links.rank() == Rank{0}) {
      EXPECT_EQ(recv_now(links, 1, 4, {4, 23}), pattern(4, 9));
    }
  });
}

TEST_P(Conformance, NeverTouchesTheBufferOfAnAbandonedReceive) {
  AllPeerLinks world = make(2);
  std::vector<std::byte> buffer(4, std::byte{0xAA});
  { const Pending abandoned = world[0]->link(Rank{1}).recv(buffer, {0, 1}); }
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() == Rank{1}) send_now(links, 0, pattern(4, 9), {0, 1});
    if (links.rank() == Rank{0}) {
      EXPECT_EQ(recv_now(links, 1, 4, {0, 1}), pattern(4, 9));
    }
  });
  EXPECT_EQ(buffer, std::vector<std::byte>(4, std::byte{0xAA}));
}

// Large messages of these tags stay with the sender until their receive is posted.
constexpr std::uint32_t kUnposted = kCollectiveTags | 5;

TEST_P(Conformance, ADetachedSendArrivesThoughItsMemoryIsUsedAgain) {
  AllPeerLinks world = make(2);
  const auto data = pattern(16_MiB, 4);
  auto lent = data;
  auto sending = world[0]->link(Rank{1}).send(lent, {1, kUnposted});
  ASSERT_FALSE(sending.done());
  on_all_ranks(world, [&](PeerLinks& links) {
    if (links.rank() == Rank{1}) {
      EXPECT_TRUE(recv_now(links, 0, data.size(), {1, kUnposted}) == data);
      send_now(links, 0, pattern(4, 1), {1, 6});
    } else {
      sending.detach();
      EXPECT_TRUE(sending.done());
      std::fill(lent.begin(), lent.end(), std::byte{0});
      EXPECT_EQ(recv_now(links, 1, 4, {1, 6}), pattern(4, 1));  // makes progress on the other
    }
  });
}

TEST_P(Conformance, TheMessageOfADetachedReceiveIsDroppedWhenItComes) {
  AllPeerLinks world = make(2);
  std::vector<std::byte> buffer(300'000, std::byte{0xAA});
  auto receiving = world[0]->link(Rank{1}).recv(buffer, {1, 5});
  receiving.detach();
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() == Rank{1}) {
      send_now(links, 0, pattern(300'000, 1), {1, 5});
      send_now(links, 0, pattern(4, 2), {1, 6});
    } else {
      EXPECT_EQ(recv_now(links, 1, 4, {1, 6}), pattern(4, 2));
      EXPECT_FALSE(links.try_next({1, 5, 5}));
    }
  });
  EXPECT_EQ(buffer, std::vector<std::byte>(300'000, std::byte{0xAA}));
}

TEST_P(Conformance, AwaitsOneOfSeveralReceivesAndMessagesOfARange) {
  AllPeerLinks world = make(3);
  on_all_ranks(world, [](PeerLinks& links) {
    if (links.rank() != Rank{0}) return send_now(links, 0, pattern(4, 1), {2, static_cast<std::uint32_t>(links.rank().value)});
    std::vector<std::byte> never(4), one(4);
    auto a = links.link(Rank{1}).recv(never, {1, 5}), b = links.link(Rank{1}).recv(one, {2, 1});
    ASSERT_TRUE(links.await([&] { return a.done() || b.done(); }, soon()));
    EXPECT_TRUE(b.done() && !a.done());
    std::optional<Message> message;
    ASSERT_TRUE(links.await([&] { return (message = links.try_next({2, 2, 9})).has_value(); }, soon()));
    EXPECT_EQ(message->from, Rank{2});
    EXPECT_FALSE(links.await([] { return false; }, Deadline::in(1ms)));
  });
}

TEST_P(Conformance, WakesThoseWhoAwaitSomethingElse) {
  AllPeerLinks world = make(2);
  std::atomic<bool> ready{false}, asleep{false};
  auto waiter = std::async(std::launch::async, [&] { return world[0]->await([&] { return asleep = true, ready.load(); }, soon()); });
  while (!asleep) std::this_thread::yield();
  ready = true;
  world[0]->wake_waiters();
  EXPECT_TRUE(waiter.get());
}

TEST_P(Conformance, PollsWithoutSleeping) {
  AllPeerLinks world = make(2);
  std::vector<std::byte> buffer(4);
  auto pending = world[0]->link(Rank{1}).recv(buffer, {0, 1});
  const long before = thread_sleeps();
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(pending.poll());
  EXPECT_LT(thread_sleeps() - before, 100);  // a few come from the scheduler
  send_now(*world[1], 0, pattern(4, 1), {0, 1});
  for (const Deadline limit = soon(); !pending.poll() && !limit.passed();) std::this_thread::yield();
  pending.wait(Deadline::in(0s));
  EXPECT_EQ(buffer, pattern(4, 1));
}

TEST_P(Conformance, UsesLittleCpuWhileWaiting) {
  AllPeerLinks world = make(4);
  on_all_ranks(world, [](PeerLinks& links) {
    std::vector<std::byte> buffer(4);
    const int peer = (links.rank().value + 1) % links.size();
    const double before = thread_cpu_ms();
    EXPECT_EQ(failure_of([&] { links.link(Rank{peer}).recv(buffer, {0, 1}).wait(Deadline::in(200ms)); }).kind, Kind::timeout);
    EXPECT_LT(thread_cpu_ms() - before, 100);  // of 200, by a clock that may include stolen time
  });
}

// A sender far ahead of its receiver waits instead of filling the receiver's memory, and everything still arrives in order.
TEST_P(Conformance, HoldsBackASenderThatIsFarAhead) {
  AllPeerLinks world = make(2);
  on_all_ranks(world, [](PeerLinks& links) {
    constexpr std::size_t kMessages = 12;
    const auto data = pattern(8_MiB, 3);  // 96 MiB in all, more than the limit of unexpected messages
    if (links.rank() == Rank{0}) {
      std::vector<Pending> pending;
      for (std::uint32_t i = 0; i < kMessages; ++i) pending.push_back(links.link(Rank{1}).send(data, {0, i}));
      send_now(links, 1, pattern(1, 1), {1, 0});
      for (auto& p : pending) p.wait(soon());
      return;
    }
    EXPECT_EQ(recv_now(links, 0, 1, {1, 0}), pattern(1, 1));  // behind everything else: a posted receive lifts the limit
    for (std::uint32_t i = 0; i < kMessages; ++i) EXPECT_TRUE(recv_now(links, 0, 8_MiB, {0, i}) == data);
  });
}

}  // namespace
}  // namespace cohort::net
