#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>

#include "cohort/queue/queue.h"
#include "cohort/queue/ranks.h"

namespace cohort::queue {
namespace {

using testing::Each;
using testing::HasSubstr;

const QueueOptions kNegotiated{.mode = Mode::negotiated};

// Rank r has batches[r] batches: it reduces that many times, then joins.
void train_unevenly(const std::vector<int>& batches, Op op) {
  const int ranks = static_cast<int>(batches.size());
  SCOPED_TRACE(testing::PrintToString(batches));
  std::vector<Rank> last(batches.size());
  run_queues(ranks, kNegotiated, [&](Queue& queue) {
    const auto me = static_cast<std::size_t>(queue.rank().value);
    for (int step = 0; step < batches[me]; ++step) {
      std::vector<float> small(5, 12.0f), other(3, 12.0f);
      std::vector<float> large(300'000, 12.0f);
      const Handle a = queue.submit(all_reduce_of(small, fmt::format("small{}", step), op));
      const Handle b = queue.submit(all_reduce_of(large, fmt::format("large{}", step), op));
      Operation group{.collective = Collective::all_reduce, .name = fmt::format("group{}", step), .op = op};
      std::vector<std::int64_t> counts(2, 12);
      group.parts = {{.in = collective::piece(std::span(other))}, {.in = collective::piece(std::span(counts))}};
      const Handle c = queue.submit(std::move(group));
      for (const Handle& handle : {a, b, c}) queue.wait(handle, either((step + queue.rank().value) % 2 == 0));
      const auto present = std::count_if(batches.begin(), batches.end(), [&](int n) { return n > step; });
      const float expected = 12.0f * static_cast<float>(present) / (op == Op::average ? static_cast<float>(ranks) : 1.0f);
      EXPECT_THAT(small, Each(expected));
      EXPECT_THAT(large, Each(expected));
      EXPECT_THAT(other, Each(expected));
      EXPECT_THAT(counts, Each(static_cast<std::int64_t>(expected)));
    }
    last[me] = queue.wait(queue.join(), either(me % 2 == 0)).last_joined;
  });
  EXPECT_THAT(last, Each(last[0])) << "all ranks get the same last one";
  const int most = *std::max_element(batches.begin(), batches.end());
  EXPECT_EQ(batches[static_cast<std::size_t>(last[0].value)], most) << "the last to join had the most batches";
}

TEST(Join, JoinedRanksContributeZerosInEveryOrderOfJoining) {
  std::vector<int> batches{0, 1, 2};
  do {
    train_unevenly(batches, Op::sum);
  } while (std::next_permutation(batches.begin(), batches.end()));
}

TEST(Join, TheAverageIsOverAllRanks) { train_unevenly({3, 1, 0, 2}, Op::average); }

TEST(Join, OneRankAloneJoinsAtOnce) { train_unevenly({2}, Op::sum); }

TEST(Join, MayBeRepeated) {
  run_queues(3, kNegotiated, [](Queue& queue) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> data(4, 1.0f);
      if (queue.rank().value == round % 3) queue.wait(queue.submit(all_reduce_of(data, "x")), soon());
      queue.wait(queue.join(), soon());
      EXPECT_THAT(data, Each(1.0f)) << "alone, or never reduced";
    }
  });
}

TEST(Join, OperationsThatCannotBeJoinedRaiseAndLeaveTheQueueUsable) {
  run_queues(2, kNegotiated, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    if (queue.rank() == Rank{0}) {
      queue.wait(queue.join(), soon());
    } else {
      Operation o{.collective = Collective::broadcast, .name = "b", .parts = {{.in = collective::piece(std::span(data))}}, .root = Rank{1}};
      const auto error = failure_of([&] { queue.wait(queue.submit(std::move(o)), soon()); });
      EXPECT_EQ(error.kind, Kind::usage);
      EXPECT_THAT(error.what, HasSubstr("broadcast is not supported with join: rank 0 joined before 'b'"));
      queue.wait(queue.submit(all_reduce_of(data, "x")), soon());
      EXPECT_THAT(data, Each(1.0f));
      queue.wait(queue.join(), soon());
    }
    queue.wait(queue.submit(all_reduce_of(data, "after")), soon());
  });
}

TEST(Join, SubmittingAfterJoiningIsRefusedUntilAllHaveJoined) {
  std::latch refused(1);  // until then the other one does not join
  run_queues(2, kNegotiated, [&](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    if (queue.rank() == Rank{0}) {
      const Handle join = queue.join();
      const auto error = failure_of([&] { queue.submit(all_reduce_of(data, "x")); });
      EXPECT_THAT(error.what, HasSubstr("after join()"));
      EXPECT_EQ(failure_of([&] { queue.join(); }).kind, Kind::usage);
      refused.count_down();
      queue.wait(join, soon());
    } else {
      refused.wait();
      queue.wait(queue.submit({.collective = Collective::barrier, .name = "passes a joined rank"}), soon());
      queue.wait(queue.join(), soon());
    }
  });
}

TEST(Join, NeedsANegotiatedQueue) {
  run_queues(1, {}, [](Queue& queue) { EXPECT_THAT(failure_of([&] { queue.join(); }).what, HasSubstr("negotiated")); });
}

}  // namespace
}  // namespace cohort::queue
