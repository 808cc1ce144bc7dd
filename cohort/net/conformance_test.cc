// The claims of conformance.h, compiled once for all transports.
#include "cohort/net/conformance.h"

namespace cohort::net {
namespace {

TEST_P(Conformance, KnowsWhoIsThere) {
  const Meshes meshes = make(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(meshes[static_cast<std::size_t>(r)]->rank(), Rank{r});
    EXPECT_EQ(meshes[static_cast<std::size_t>(r)]->size(), 3);
    for (int p = 0; p < 3; ++p) EXPECT_FALSE(meshes[static_cast<std::size_t>(r)]->failure(Rank{p}));
  }
  EXPECT_EQ(failure_of([&] { meshes[0]->link(Rank{3}); }).kind, Kind::usage);
}

TEST_P(Conformance, KeepsOrderPerTag) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    for (std::uint32_t i = 0; i < 500; ++i) {
      if (mesh.rank() == Rank{0}) {
        send_now(mesh, 1, bytes_of(i), {1, 7});
      } else {
        std::uint32_t got = 0;
        mesh.link(Rank{0}).recv(writable_bytes_of(got), {1, 7}).wait(soon());
        ASSERT_EQ(got, i);
      }
    }
  });
}

TEST_P(Conformance, KeepsOrderForReceivesPostedAhead) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    std::vector<std::uint32_t> values(100);
    std::vector<Pending> pending;
    for (std::uint32_t i = 0; i < 100; ++i) {
      if (mesh.rank() == Rank{0}) values[i] = i;
      pending.push_back(mesh.rank() == Rank{0} ? mesh.link(Rank{1}).send(bytes_of(values[i]), {1, i % 3})
                                               : mesh.link(Rank{0}).recv(writable_bytes_of(values[i]), {1, i % 3}));
    }
    for (auto& p : pending) p.wait(soon());
    for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(values[i], i);
  });
}

TEST_P(Conformance, LetsTagsOvertakeEachOther) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    const auto one = pattern(100, 1), two = pattern(200'000, 2), three = pattern(3, 3);
    if (mesh.rank() == Rank{0}) {
      auto a = mesh.link(Rank{1}).send(one, {0, 1}), b = mesh.link(Rank{1}).send(two, {0, 2}), c = mesh.link(Rank{1}).send(three, {9, 1});
      for (auto* p : {&a, &b, &c}) p->wait(soon());
    } else {
      EXPECT_EQ(recv_now(mesh, 0, 3, {9, 1}), three);
      EXPECT_EQ(recv_now(mesh, 0, 200'000, {0, 2}), two);
      EXPECT_EQ(recv_now(mesh, 0, 100, {0, 1}), one);
    }
  });
}

TEST_P(Conformance, ExchangesBigMessagesBothWaysAtOnce) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    const int me = mesh.rank().value, peer = 1 - me;
    const auto mine = pattern(8_MiB, static_cast<unsigned>(me));
    std::vector<std::byte> theirs(8_MiB);
    auto sending = mesh.link(Rank{peer}).send(mine, {0, 0});
    auto receiving = mesh.link(Rank{peer}).recv(theirs, {0, 0});
    sending.wait(soon());  // moves the receive along too
    receiving.wait(soon());
    EXPECT_TRUE(theirs == pattern(8_MiB, static_cast<unsigned>(peer)));
  });
}

TEST_P(Conformance, CarriesAnySize) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    for (const std::size_t size : {0UL, 1UL, 3UL, 63UL, 64UL, 65UL, 4095UL, 4097UL, 65537UL, 262143UL, 262144UL, 262145UL, 1000003UL}) {
      const auto data = pattern(size, static_cast<unsigned>(size));
      if (mesh.rank() == Rank{0})
        send_now(mesh, 1, data, {2, 0});
      else
        EXPECT_TRUE(recv_now(mesh, 0, size, {2, 0}) == data) << size << " bytes";
    }
  });
}

TEST_P(Conformance, ServesManyThreadsOnOneLink) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    std::vector<std::future<void>> threads;
    for (std::uint32_t t = 0; t < 6; ++t)
      threads.push_back(std::async(std::launch::async, [&mesh, t] {
        const int peer = 1 - mesh.rank().value;
        for (std::uint32_t i = 0; i < 40; ++i) {
          const auto data = pattern((t * 7919 + i * 997) % 30'000, t * 1000 + i);
          std::vector<std::byte> got(data.size());
          auto receiving = mesh.link(Rank{peer}).recv(got, {t, i});
          mesh.link(Rank{peer}).send(data, {t, i}).wait(soon());
          receiving.wait(soon());
          ASSERT_TRUE(got == data);
        }
      }));
    for (auto& thread : threads) thread.get();
  });
}

TEST_P(Conformance, LinksARankToItself) {
  for (const int ranks : {1, 2}) {
    const Meshes meshes = make(ranks);
    const auto data = pattern(100'000, 5);
    send_now(*meshes[0], 0, data, {0, 1});
    EXPECT_TRUE(recv_now(*meshes[0], 0, data.size(), {0, 1}) == data);
    std::uint64_t got = 0;
    const std::uint64_t value = 77;
    auto receiving = meshes[0]->link(Rank{0}).recv(writable_bytes_of(got), {0, 2});
    send_now(*meshes[0], 0, bytes_of(value), {0, 2});
    receiving.wait(soon());
    EXPECT_EQ(got, 77U);
  }
}

TEST_P(Conformance, StaysUsableAfterALengthMismatch) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    const auto data = pattern(300'000, 1);
    for (const std::size_t expected : {10UL, 299'999UL, 300'001UL}) {
      if (mesh.rank() == Rank{0}) {
        send_now(mesh, 1, data, {0, 1});
        send_now(mesh, 1, data, {0, 1});
        continue;
      }
      const Error error = failure_of([&] { recv_now(mesh, 0, expected, {0, 1}); });
      EXPECT_EQ(error.kind, Kind::corrupt);
      EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("300000"), ::testing::HasSubstr(std::to_string(expected))));
      EXPECT_TRUE(recv_now(mesh, 0, 300'000, {0, 1}) == data);
    }
  });
}

TEST_P(Conformance, TakesTheNextMessageFromAnyPeer) {
  Meshes meshes = make(4);
  on_all_ranks(meshes, [](Mesh& mesh) {
    constexpr std::uint32_t kEach = 20;
    if (mesh.rank() != Rank{0}) {
      for (std::uint32_t i = 0; i < kEach; ++i) send_now(mesh, 0, pattern(i * 100, static_cast<unsigned>(mesh.rank().value)), {3, 10 + i});
      return;
    }
    std::vector<std::uint32_t> seen(4, 0);
    for (std::uint32_t i = 0; i < 3 * kEach; ++i) {
      const Message m = mesh.next({3, 10, 10 + kEach}, soon());
      const auto from = static_cast<std::size_t>(m.from.value);
      ASSERT_EQ(m.tag, (Tag{3, 10 + seen[from]})) << "from rank " << from;
      EXPECT_TRUE(m.bytes == pattern(seen[from] * 100, static_cast<unsigned>(from)));
      ++seen[from];
    }
    EXPECT_THAT(seen, ::testing::ElementsAre(0, kEach, kEach, kEach));
  });
}

TEST_P(Conformance, NextLeavesOtherTagsAlone) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    if (mesh.rank() == Rank{0}) {
      for (const std::uint32_t number : {1U, 2U, 3U}) send_now(mesh, 1, bytes_of(number), {0, number});
      return;
    }
    EXPECT_EQ(mesh.next({0, 3, 9}, soon()).tag, (Tag{0, 3}));
    EXPECT_EQ(mesh.next({0, 2, 9}, soon()).tag, (Tag{0, 2}));
    EXPECT_EQ(failure_of([&] { mesh.next({0, 2, 9}, Deadline::in(10ms)); }).kind, Kind::timeout);
    EXPECT_EQ(recv_now(mesh, 0, 4, {0, 1}).size(), 4U);
  });
}

TEST_P(Conformance, DiscardsWhatNobodyAskedFor) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    const std::uint32_t old = 1, fresh = 2;
    if (mesh.rank() == Rank{0}) {
      send_now(mesh, 1, bytes_of(old), {5, 1});
      send_now(mesh, 1, bytes_of(old), {6, 1});  // another channel: stays
      recv_now(mesh, 1, 1, {0, 0});
      send_now(mesh, 1, bytes_of(fresh), {5, 1});
      return;
    }
    EXPECT_EQ(recv_now(mesh, 0, 4, {6, 1}).size(), 4U);  // the one before it has arrived as well
    mesh.discard({5, 0, 100});
    send_now(mesh, 0, pattern(1, 0), {0, 0});
    std::uint32_t got = 0;
    mesh.link(Rank{0}).recv(writable_bytes_of(got), {5, 1}).wait(soon());
    EXPECT_EQ(got, fresh);
  });
}

TEST_P(Conformance, EndsAWaitAtItsDeadlineAndStaysUsable) {
  Meshes meshes = make(2);
  std::vector<std::byte> buffer(4);
  const auto begin = Clock::now();
  const Error error = failure_of([&] { meshes[0]->link(Rank{1}).recv(buffer, {4, 23}).wait(Deadline::in(50ms)); });
  const Seconds took = Clock::now() - begin;
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_EQ(error.rank, Rank{1});
  EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr("tag 4:23")));
  EXPECT_GE(took.count(), 0.05);
  EXPECT_LT(took.count(), 5);
  EXPECT_EQ(failure_of([&] { meshes[0]->next({4, 0, 99}, Deadline::in(10ms)); }).kind, Kind::timeout);
  on_all_ranks(meshes, [](Mesh& mesh) {
    if (mesh.rank() == Rank{1}) send_now(mesh, 0, pattern(4, 9), {4, 23});
    if (mesh.rank() == Rank{0}) {
      EXPECT_EQ(recv_now(mesh, 1, 4, {4, 23}), pattern(4, 9));
    }
  });
}

TEST_P(Conformance, NeverTouchesTheBufferOfAnAbandonedReceive) {
  Meshes meshes = make(2);
  std::vector<std::byte> buffer(4, std::byte{0xAA});
  { const Pending abandoned = meshes[0]->link(Rank{1}).recv(buffer, {0, 1}); }
  on_all_ranks(meshes, [](Mesh& mesh) {
    if (mesh.rank() == Rank{1}) send_now(mesh, 0, pattern(4, 9), {0, 1});
    if (mesh.rank() == Rank{0}) {
      EXPECT_EQ(recv_now(mesh, 1, 4, {0, 1}), pattern(4, 9));
    }
  });
  EXPECT_EQ(buffer, std::vector<std::byte>(4, std::byte{0xAA}));
}

TEST_P(Conformance, FailsForGoodWithTheFirstError) {
  const Meshes meshes = make(3);
  std::vector<std::byte> buffer(4);
  auto pending = meshes[0]->link(Rank{1}).recv(buffer, {0, 1});
  auto waiter = std::async(std::launch::async, [&] { return failure_of([&] { pending.wait(soon()); }); });
  meshes[0]->link(Rank{1}).fail({Kind::corrupt, "first", Rank{1}});
  meshes[0]->link(Rank{1}).fail({Kind::system, "second", Rank{1}});
  EXPECT_EQ(waiter.get().what, "first");
  EXPECT_EQ(failure_of([&] { meshes[0]->link(Rank{1}).recv(buffer, {0, 2}).wait(soon()); }).what, "first");
  EXPECT_EQ(failure_of([&] { meshes[0]->link(Rank{1}).send(buffer, {0, 2}).wait(soon()); }).what, "first");
  ASSERT_TRUE(meshes[0]->failure(Rank{1}));
  EXPECT_EQ(meshes[0]->failure(Rank{1})->kind, Kind::corrupt);
  EXPECT_FALSE(meshes[0]->failure(Rank{2}));
  send_now(*meshes[0], 2, pattern(4, 1), {0, 3});
  EXPECT_EQ(recv_now(*meshes[2], 0, 4, {0, 3}), pattern(4, 1));
}

TEST_P(Conformance, TellsEveryPeerWhyItAborts) {
  Meshes meshes = make(3);
  on_all_ranks(meshes, [](Mesh& mesh) {
    if (mesh.rank() == Rank{1}) {
      mesh.abort({Kind::usage, "loss is not a number", Rank{1}});
      EXPECT_EQ(failure_of([&] { recv_now(mesh, 0, 4, {0, 1}); }).what, "loss is not a number");
      return;
    }
    const Error error = failure_of([&] { recv_now(mesh, 1, 4, {0, 1}); });
    EXPECT_EQ(error.kind, Kind::aborted) << error.what;
    EXPECT_THAT(error.what, ::testing::AllOf(::testing::HasSubstr("rank 1"), ::testing::HasSubstr("loss is not a number")));
    EXPECT_THAT(failure_of([&] { mesh.next({0, 0, 9}, soon()); }).what, ::testing::HasSubstr("loss is not a number"));
  });
}

TEST_P(Conformance, KnowsThatAPeerLeftOverItsOwnAbort) {
  Meshes meshes = make(3);
  meshes[0]->watch([&](Rank rank, const Error&) {
    if (rank != Rank{1}) return;
    meshes[2].reset();  // in the middle of the abort: rank 2 has been told, and the link to it is still open
    for (const Deadline limit = Deadline::in(2s); !meshes[0]->failure(Rank{2}) && !limit.passed();) std::this_thread::sleep_for(1ms);
  });
  meshes[0]->abort({Kind::usage, "loss is not a number", Rank{0}});
  EXPECT_EQ(meshes[0]->failure(Rank{2})->what, "loss is not a number");
}

TEST_P(Conformance, FailsPendingCallsWhenAPeerLeaves) {
  Meshes meshes = make(3);
  std::atomic<int> waiting{0};
  std::vector<std::future<Error>> waiters;
  for (const std::size_t r : {0UL, 1UL})
    waiters.push_back(std::async(std::launch::async, [&, r] {
      std::vector<std::byte> buffer(4);
      auto pending = meshes[r]->link(Rank{2}).recv(buffer, {0, 1});
      ++waiting;
      return failure_of([&] { pending.wait(soon()); });
    }));
  while (waiting < 2) std::this_thread::yield();
  meshes[2].reset();
  for (auto& waiter : waiters) {
    const Error error = waiter.get();
    EXPECT_EQ(error.kind, Kind::peer_lost) << error.what;
    EXPECT_THAT(error.what, ::testing::HasSubstr("rank 2"));
    EXPECT_EQ(error.rank, Rank{2});
  }
  EXPECT_EQ(failure_of([&] { meshes[0]->next({0, 0, 9}, soon()); }).kind, Kind::peer_lost);
  send_now(*meshes[0], 1, pattern(9, 1), {0, 3});
  EXPECT_EQ(recv_now(*meshes[1], 0, 9, {0, 3}), pattern(9, 1));
}

TEST_P(Conformance, DeliversWhatALeavingPeerSentBefore) {
  Meshes meshes = make(2);
  for (std::uint32_t i = 0; i < 10; ++i) send_now(*meshes[1], 0, pattern(i * 40, i), {0, i});
  meshes[1].reset();
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(recv_now(*meshes[0], 1, i * 40, {0, i}) == pattern(i * 40, i));
  EXPECT_EQ(meshes[0]->next({0, 0, 99}, soon()).tag, (Tag{0, 9}));
  EXPECT_EQ(failure_of([&] { recv_now(*meshes[0], 1, 1, {0, 10}); }).kind, Kind::peer_lost);
}

TEST_P(Conformance, CallsWatchersOncePerFailedPeer) {
  Meshes meshes = make(3);
  std::mutex mutex;
  std::vector<int> early, late, never;
  std::promise<void> first;
  const int id = meshes[0]->watch([&](Rank rank, const Error&) {
    const std::lock_guard lock(mutex);
    early.push_back(rank.value);
    if (rank == Rank{1}) first.set_value();
  });
  const int unwatched = meshes[0]->watch([&](Rank rank, const Error&) { never.push_back(rank.value); });
  meshes[0]->unwatch(unwatched);
  meshes[1].reset();  // noticed while nobody waits
  ASSERT_EQ(first.get_future().wait_for(20s), std::future_status::ready);
  meshes[0]->link(Rank{2}).fail({Kind::corrupt, "told", Rank{2}});
  meshes[0]->link(Rank{2}).fail({Kind::corrupt, "told again", Rank{2}});
  meshes[0]->watch([&](Rank rank, const Error&) { late.push_back(rank.value); });
  meshes[0]->unwatch(id);
  EXPECT_THAT(early, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(late, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(never, ::testing::IsEmpty());
}

TEST_P(Conformance, LetsAWatcherUseTheMesh) {
  Meshes meshes = make(3);
  std::promise<std::string> told;
  meshes[0]->watch([&](Rank rank, const Error& error) {
    if (rank != Rank{1}) return;  // the abort below fails the others, from inside this very call
    meshes[0]->abort({Kind::aborted, "giving up: " + error.what, rank});
    told.set_value(meshes[0]->failure(Rank{2})->what);
  });
  meshes[0]->link(Rank{1}).fail({Kind::corrupt, "bad bytes", Rank{1}});
  EXPECT_EQ(told.get_future().get(), "giving up: bad bytes");
}

TEST_P(Conformance, LetsWatchersOfAllRanksAbortAtOnce) {
  Meshes meshes = make(4);
  for (auto& mesh : meshes)
    mesh->watch([m = mesh.get()](Rank rank, const Error& error) { m->abort({Kind::aborted, "giving up: " + error.what, rank}); });
  on_all_ranks(meshes, [](Mesh& mesh) {
    mesh.link(Rank{(mesh.rank().value + 1) % mesh.size()}).fail({Kind::corrupt, "bad bytes", kNoRank});
    for (Rank r{0}; r.value < mesh.size(); ++r.value)
      EXPECT_NE(failure_of([&] { recv_now(mesh, r.value, 4, {0, 1}); }).kind, Kind::timeout);
  });
}

TEST_P(Conformance, PollsWithoutSleeping) {
  Meshes meshes = make(2);
  std::vector<std::byte> buffer(4);
  auto pending = meshes[0]->link(Rank{1}).recv(buffer, {0, 1});
  const long before = thread_sleeps();
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(pending.poll());
  EXPECT_LT(thread_sleeps() - before, 100);  // a few are the scheduler's
  send_now(*meshes[1], 0, pattern(4, 1), {0, 1});
  for (const Deadline limit = soon(); !pending.poll() && !limit.passed();) std::this_thread::yield();
  pending.wait(Deadline::in(0s));
  EXPECT_EQ(buffer, pattern(4, 1));
}

TEST_P(Conformance, BurnsNoCpuWhileWaiting) {
  Meshes meshes = make(4);
  on_all_ranks(meshes, [](Mesh& mesh) {
    std::vector<std::byte> buffer(4);
    const int peer = (mesh.rank().value + 1) % mesh.size();
    const double before = thread_cpu_ms();
    EXPECT_EQ(failure_of([&] { mesh.link(Rank{peer}).recv(buffer, {0, 1}).wait(Deadline::in(200ms)); }).kind, Kind::timeout);
    EXPECT_LT(thread_cpu_ms() - before, 100);  // of 200, by a clock that may count what the host took away
  });
}

TEST_P(Conformance, ConnectsEveryPairOfAnyNumberOfRanks) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    Meshes meshes = make(ranks);
    on_all_ranks(meshes, [](Mesh& mesh) {
      const auto n = static_cast<std::size_t>(mesh.size());
      const auto mine = pattern(5000, static_cast<unsigned>(mesh.rank().value));
      std::vector<std::vector<std::byte>> got(n, std::vector<std::byte>(5000));
      std::vector<Pending> pending;
      for (std::size_t p = 0; p < n; ++p) pending.push_back(mesh.link(Rank{static_cast<int>(p)}).recv(got[p], {0, 5}));
      for (std::size_t p = 0; p < n; ++p) pending.push_back(mesh.link(Rank{static_cast<int>(p)}).send(mine, {0, 5}));
      for (auto& p : pending) p.wait(soon());
      for (std::size_t p = 0; p < n; ++p) EXPECT_TRUE(got[p] == pattern(5000, static_cast<unsigned>(p)));
      for (std::size_t p = 0; p < n; ++p) send_now(mesh, static_cast<int>(p), {}, {0, 6});  // nobody leaves before all are through
      for (std::size_t p = 0; p < n; ++p) recv_now(mesh, static_cast<int>(p), 0, {0, 6});
    });
  }
}

// A sender far ahead of its receiver waits instead of filling the receiver's memory, and everything still arrives in order.
TEST_P(Conformance, HoldsBackASenderThatIsFarAhead) {
  Meshes meshes = make(2);
  on_all_ranks(meshes, [](Mesh& mesh) {
    constexpr std::size_t kMessages = 12;
    const auto data = pattern(8_MiB, 3);  // 96 MiB in all, more than a mailbox holds unasked
    if (mesh.rank() == Rank{0}) {
      std::vector<Pending> pending;
      for (std::uint32_t i = 0; i < kMessages; ++i) pending.push_back(mesh.link(Rank{1}).send(data, {0, i}));
      send_now(mesh, 1, pattern(1, 1), {1, 0});
      for (auto& p : pending) p.wait(soon());
      return;
    }
    EXPECT_EQ(recv_now(mesh, 0, 1, {1, 0}), pattern(1, 1));  // behind everything else: a waiting receive lifts the limit
    for (std::uint32_t i = 0; i < kMessages; ++i) EXPECT_TRUE(recv_now(mesh, 0, 8_MiB, {0, i}) == data);
  });
}

}  // namespace
}  // namespace cohort::net
