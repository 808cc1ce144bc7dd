// Many threads, and the end of a queue: bounded, harmless, whichever rank goes first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "cohort/base/slowdown.h"
#include "cohort/queue/queue.h"
#include "cohort/queue/ranks.h"

namespace cohort::queue {
namespace {

using testing::Each;
using testing::HasSubstr;

const QueueOptions kNegotiated{.mode = Mode::negotiated};

TEST(QueueThreads, ManyThreadsSubmitPollAndWaitOnEveryRank) {
  constexpr int kThreads = 4, kEach = 40;
  run_queues(3, kNegotiated, [](Queue& queue) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          std::vector<float> data(static_cast<std::size_t>(i + 1), 1.0f);
          const Handle handle = queue.submit(all_reduce_of(data, fmt::format("thread{}", t)));
          queue.poll(handle);
          queue.wait(handle, either((t + i) % 2 == 0));
          EXPECT_THAT(data, Each(3.0f));
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(QueueThreads, InOrderManyThreadsWaitForWhatOneSubmits) {
  run_queues(3, {}, [](Queue& queue) {
    std::vector<std::vector<float>> data(60, std::vector<float>(50, 1.0f));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const Handle handle = queue.submit(all_reduce_of(data[i], fmt::format("t{}", i)));
      if (i % 3 != 0) continue;  // nobody waits for the others: the progress thread finishes them
      threads.emplace_back([&queue, &mine = data[i], handle, i] {
        queue.wait(handle, either(i % 2 == 0));
        EXPECT_THAT(mine, Each(3.0f));
      });
    }
    for (auto& thread : threads) thread.join();
    queue.wait(queue.submit({.collective = Collective::barrier}), soon());
    for (const auto& mine : data) EXPECT_THAT(mine, Each(3.0f));
  });
}

// A caller that has always waited stops doing so: the progress thread must notice by itself.
TEST(QueueThreads, ALoneOperationNobodyWaitsForStartsSoonAfterSynchronousOnes) {
  for (const Mode mode : {Mode::in_order, Mode::negotiated}) {
    run_queues(2, {.mode = mode}, [](Queue& queue) {
      std::vector<float> data(4, 1.0f);
      for (int i = 0; i < 20; ++i) queue.wait(queue.submit(all_reduce_of(data, "synchronous")), working());
      std::vector<float> lone(4, 1.0f);
      const Handle handle = queue.submit(all_reduce_of(lone, "lone"));
      const Deadline patience = soon();
      while (!queue.poll(handle) && !patience.passed()) std::this_thread::yield();
      EXPECT_THAT(lone, Each(2.0f));
    });
  }
}

TEST(QueueThreads, SeveralThreadsMayWaitForOneHandle) {
  run_queues(2, kNegotiated, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    const Handle handle = queue.submit(all_reduce_of(data, "x"));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&, t] { queue.wait(handle, either(t % 2 == 0)); });
    for (auto& thread : threads) thread.join();
    EXPECT_THAT(data, Each(2.0f));
  });
}

TEST(QueueThreads, QueuesOfProcessSetsRunSideBySide) {
  auto links = net::loopback_world(4);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r] {
      const auto world = collective::open(std::shared_ptr<net::PeerLinks>(std::move(links[r])), test_options());
      Queue half(world->split(static_cast<int>(r % 2)), kNegotiated), all(world->split(0), kNegotiated);
      std::vector<float> a(10, 1.0f), b(10, 1.0f);
      const Handle in_all = all.submit(all_reduce_of(a, "x")), in_half = half.submit(all_reduce_of(b, "x"));
      half.wait(in_half, soon());
      all.wait(in_all, soon());
      EXPECT_THAT(a, Each(4.0f));
      EXPECT_THAT(b, Each(2.0f));
      world->barrier();
    });
  }
  for (auto& thread : ranks) thread.join();
}

// ---- the end

TEST(QueueEnd, AnIdleQueueGoesAtOnceAndManyTimesOver) {
  for (const Mode mode : {Mode::in_order, Mode::negotiated}) {
    for (int i = 0; i < 20; ++i) {
      const auto start = Clock::now();
      auto queues = open_queues(3, {.mode = mode});
      queues.clear();
      EXPECT_LT(Clock::now() - start, 1s * slowdown());
    }
  }
}

TEST(QueueEnd, WhatIsInFlightEverywhereIsFinishedBeforeTheQueueGoes) {
  for (const Mode mode : {Mode::in_order, Mode::negotiated}) {
    std::vector<std::vector<float>> data(3, std::vector<float>(1000, 1.0f));
    {
      auto queues = open_queues(3, {.mode = mode, .drain = 20s});
      for (std::size_t r = 0; r < 3; ++r) queues[r]->submit(all_reduce_of(data[r], "x"));
      std::vector<std::thread> threads;
      for (auto& queue : queues) threads.emplace_back([&] { queue.reset(); });
      for (auto& thread : threads) thread.join();
    }
    for (const auto& mine : data) EXPECT_THAT(mine, Each(3.0f));
  }
}

TEST(QueueEnd, AnUnmatchedOperationDelaysTheEndByTheDrainAtMostAndItsHandleHasTheReason) {
  auto queues = open_queues(2, {.mode = Mode::negotiated, .drain = 100ms});
  std::vector<float> data(4, 1.0f);
  const Handle handle = queues[1]->submit(all_reduce_of(data, "unmatched"));
  const auto start = Clock::now();
  queues[1].reset();
  EXPECT_LT(Clock::now() - start, 1s * slowdown());
  const auto error = failure_of([&] { queues[0]->wait(handle, soon()); });  // any queue may wait for any handle
  EXPECT_EQ(error.kind, Kind::aborted);
  EXPECT_THAT(error.what, HasSubstr("rank 1 shut its queue down"));
}

TEST(QueueEnd, RanksThatAllGoWithDifferentUnmatchedOperationsDoNotWaitOutTheDrain) {
  auto queues = open_queues(3, {.mode = Mode::negotiated, .drain = 30s});
  std::vector<std::vector<float>> data(3, std::vector<float>(4));
  for (std::size_t r = 0; r < 3; ++r) queues[r]->submit(all_reduce_of(data[r], fmt::format("only on {}", r)));
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (auto& queue : queues) threads.emplace_back([&] { queue.reset(); });
  for (auto& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - start, 10s * slowdown());
}

TEST(QueueEnd, TheOthersLearnAtOnceThatARankHasLeft) {
  for (const std::size_t goes : {std::size_t{0}, std::size_t{2}}) {
    auto queues = open_queues(3, {.mode = Mode::negotiated});
    std::vector<float> data(4, 1.0f);
    const Handle handle = queues[1]->submit(all_reduce_of(data, "x"));
    queues[goes].reset();
    const auto error = failure_of([&] { queues[1]->wait(handle, Deadline::in(2s * slowdown())); });
    EXPECT_TRUE(error.kind == Kind::aborted || error.kind == Kind::peer_lost) << error.what;
    EXPECT_THAT(error.what, HasSubstr(fmt::format("rank {}", goes)));
  }
}

TEST(QueueEnd, InOrderAQueueStuckInACollectiveIsAbortedAfterTheDrain) {
  auto queues = open_queues(2, {.mode = Mode::in_order, .drain = 50ms});
  std::vector<float> data(4, 1.0f);
  const Handle handle = queues[0]->submit(all_reduce_of(data, "alone"));
  const auto start = Clock::now();
  queues[0].reset();
  EXPECT_LT(Clock::now() - start, 2s * slowdown());
  EXPECT_EQ(failure_of([&] { queues[1]->wait(handle, soon()); }).kind, Kind::aborted);
}

}  // namespace
}  // namespace cohort::queue
