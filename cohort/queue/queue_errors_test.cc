// What goes wrong, which ranks get the error, and what still works afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <memory>

#include "cohort/base/slowdown.h"
#include "cohort/queue/queue.h"
#include "cohort/queue/ranks.h"

namespace cohort::queue {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

const QueueOptions kNegotiated{.mode = Mode::negotiated};

void expect_usable(Queue& queue) {
  std::vector<float> data(3, 1.0f);
  queue.wait(queue.submit(all_reduce_of(data, "still usable")), soon());
  EXPECT_THAT(data, Each(static_cast<float>(queue.size())));
}

struct Mismatch {
  const char* label;
  const char* text;
  std::function<void(Operation&)> alter;  // on rank 1 only
};

class Mismatches : public testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, AreErrorsOnEveryRankThatNameBothSidesAndLeaveTheQueueUsable) {
  run_queues(3, kNegotiated, [](Queue& queue) {
    std::vector<float> data(8, 1.0f);
    Operation o = all_reduce_of(data, "x");
    o.root = Rank{0};
    if (queue.rank() == Rank{1}) GetParam().alter(o);
    const auto error = failure_of([&] { queue.wait(queue.submit(std::move(o)), Deadline::in(2s * slowdown())); });
    EXPECT_EQ(error.kind, Kind::usage) << error.what;
    EXPECT_THAT(error.what, AllOf(HasSubstr(GetParam().text), HasSubstr("rank 1 has")));
    expect_usable(queue);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Queue, Mismatches,
    testing::Values(Mismatch{"types", "Mismatched data types: One rank had type", [](Operation& o) { o.parts[0].in.dtype = Dtype::i32; }},
                    Mismatch{"shapes", "Mismatched allreduce tensor shapes: One rank sent a tensor of shape",
                             [](Operation& o) { o.parts[0].in.count = 4; }},
                    Mismatch{"ops", "Mismatched reduction operations", [](Operation& o) { o.op = Op::min; }},
                    Mismatch{"scales", "Mismatched prescale and/or postscale factors", [](Operation& o) { o.prescale = 2.0; }},
                    Mismatch{"collectives", "Mismatched operations", [](Operation& o) { o.collective = Collective::broadcast; }},
                    Mismatch{"roots", "Mismatched allreduce root ranks", [](Operation& o) { o.root = Rank{2}; }}),
    [](const auto& test) { return test.param.label; });

TEST(QueueErrors, AMismatchInOrderIsAnErrorOnEveryRankAndLeavesTheQueueUsable) {
  run_queues(3, {}, [](Queue& queue) {
    std::vector<float> data(8, 1.0f);
    Operation o = all_reduce_of(data, "x");
    if (queue.rank() == Rank{1}) o.parts[0].in.count = 4;
    const auto error = failure_of([&] { queue.wait(queue.submit(std::move(o)), Deadline::in(2s * slowdown())); });
    EXPECT_EQ(error.kind, Kind::usage) << error.what;
    expect_usable(queue);
  });
}

TEST(QueueErrors, ASecondSubmitUnderANameInFlightFailsAtOnce) {
  run_queues(2, {.mode = Mode::negotiated, .name_window = 60s}, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    const Handle first = queue.submit(all_reduce_of(data, "twice"));
    const auto error = failure_of([&] { queue.submit(all_reduce_of(data, "twice")); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr("Duplicate tensor name 'twice'"));
    queue.wait(first, soon());
    queue.wait(queue.submit(all_reduce_of(data, "twice")), soon());
  });
}

TEST(QueueErrors, AnEmptyHandleIsRefused) {
  run_queues(1, {}, [](Queue& queue) {
    EXPECT_EQ(failure_of([&] { queue.wait({}, soon()); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { queue.poll({}); }).kind, Kind::usage);
  });
}

TEST(QueueErrors, AWaitThatPassesItsDeadlineNamesTheOperationWhichGoesOn) {
  run_queues(2, kNegotiated, [](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    if (queue.rank() == Rank{0}) {
      const Handle early = queue.submit(all_reduce_of(data, "early"));
      const auto error = failure_of([&] { queue.wait(early, Deadline::in(10ms)); });
      EXPECT_EQ(error.kind, Kind::timeout);
      EXPECT_THAT(error.what, HasSubstr("'early' was not done"));
      queue.wait(queue.submit({.collective = Collective::barrier}), soon());
      queue.wait(early, soon());
    } else {
      queue.wait(queue.submit({.collective = Collective::barrier}), soon());
      queue.wait(queue.submit(all_reduce_of(data, "early")), soon());
    }
    EXPECT_THAT(data, Each(2.0f));
  });
}

TEST(QueueErrors, AnAllocatorThatThrowsEndsTheQueueOnEveryRankWithTheCause) {
  run_queues(2, kNegotiated, [](Queue& queue) {
    std::vector<float> data(4, 1.0f), out(8);
    Operation o{.collective = Collective::all_gather, .name = "gather", .parts = {{.in = collective::piece(std::span(data))}}};
    o.allocate = [&](std::size_t, std::size_t) -> void* {
      if (queue.rank() == Rank{1}) throw std::bad_alloc();
      return out.data();
    };
    const auto error = failure_of([&] { queue.wait(queue.submit(std::move(o)), soon()); });
    EXPECT_THAT(error.what, HasSubstr("no memory for the 8 elements that all_gather 'gather' receives"));
    EXPECT_EQ(failure_of([&] { queue.submit(all_reduce_of(data, "after")); }).kind, error.kind) << "sticky";
  });
}

TEST(QueueErrors, AbortWakesTheWaitersOfEveryRank) {
  for (const Mode mode : {Mode::in_order, Mode::negotiated}) {
    run_queues(3, {.mode = mode}, [](Queue& queue) {
      std::vector<float> data(4, 1.0f);
      if (queue.rank() == Rank{2}) return queue.abort({Kind::aborted, "the operator pressed the button", Rank{2}});
      const bool works = queue.rank() == Rank{1};
      const auto error = failure_of([&] { queue.wait(queue.submit(all_reduce_of(data, "x")), either(works)); });
      EXPECT_EQ(error.kind, Kind::aborted) << error.what;
      EXPECT_THAT(error.what, HasSubstr("the operator pressed the button"));
    });
  }
}

TEST(QueueErrors, ARankThatVanishesIsAnErrorForTheOthersThatNamesIt) {
  for (const Mode mode : {Mode::in_order, Mode::negotiated}) {
    auto queues = open_queues(3, {.mode = mode, .drain = 50ms});
    std::vector<float> a(4), c(4);
    const Handle first = queues[0]->submit(all_reduce_of(a, "x")), last = queues[2]->submit(all_reduce_of(c, "x"));
    queues[1].reset();
    for (const auto& [rank, handle] : {std::pair{0, first}, std::pair{2, last}}) {
      const auto error = failure_of([&] { queues[static_cast<std::size_t>(rank)]->wait(handle, soon()); });
      EXPECT_TRUE(error.kind == Kind::peer_lost || error.kind == Kind::aborted) << error.what;
      EXPECT_THAT(error.what, HasSubstr("rank 1"));
    }
  }
}

TEST(QueueErrors, TheStallReportNamesMissingRanksAndReachesTimedOutWaits) {
  std::vector<std::string> reports;  // rank 0's progress thread only
  std::atomic<int> reported{0};
  QueueOptions options{.mode = Mode::negotiated, .warn_after = 500ms * slowdown()};
  std::barrier both(2);  // 500 ms from the first to the second would make another report
  options.report = [&](const std::string& text) {
    reports.push_back(text);
    reported.store(1);
    reported.notify_all();
  };
  run_queues(3, options, [&](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    Handle handle;
    if (queue.rank() != Rank{1}) {
      both.arrive_and_wait();
      handle = queue.submit(all_reduce_of(data, "slow"));
    }
    reported.wait(0);
    if (queue.rank() == Rank{2}) {
      queue.wait(queue.submit({.collective = Collective::barrier, .name = "reported"}), soon());
      const auto error = failure_of([&] { queue.wait(handle, Deadline::in(1ms)); });
      EXPECT_THAT(error.what, HasSubstr("Missing ranks:\n1: [slow]"));
    } else {
      queue.wait(queue.submit({.collective = Collective::barrier, .name = "reported"}), soon());
    }
    queue.wait(queue.submit({.collective = Collective::barrier, .name = "asked"}), soon());
    if (!handle) handle = queue.submit(all_reduce_of(data, "slow"));
    queue.wait(handle, soon());
  });
  ASSERT_GE(reports.size(), 1u);  // a barrier that a busy machine holds up for 500 ms is reported too
  EXPECT_THAT(reports[0], HasSubstr("Missing ranks:\n1: [slow]\nLast submitted:\n0: slow\n1: nothing yet\n2: slow"));
}

TEST(QueueErrors, AfterTheShutdownTimeEveryRankFailsWithTheMissingRanks) {
  const QueueOptions options{.mode = Mode::negotiated, .warn_after = 0s, .shutdown_after = 50ms};
  std::latch submitted(2);  // what comes later than the report is not in it
  run_queues(3, options, [&](Queue& queue) {
    std::vector<float> data(4, 1.0f);
    Error error;
    if (queue.rank() != Rank{1}) {
      error = failure_of([&] {  // the submit too, where it comes 50 ms after the other's
        Handle never;
        {
          const std::shared_ptr<void> at_any_rate(nullptr, [&](void*) { submitted.count_down(); });
          never = queue.submit(all_reduce_of(data, "never"));
        }
        queue.wait(never, either(queue.rank() == Rank{2}));
      });
    } else {
      submitted.wait();
      error = failure_of([&] { queue.wait(queue.submit(all_reduce_of(data, "other")), soon()); });
    }
    EXPECT_EQ(error.kind, Kind::timeout);
    EXPECT_THAT(error.what, HasSubstr("1: [never]"));
    EXPECT_EQ(failure_of([&] { queue.submit(all_reduce_of(data, "after")); }).kind, Kind::timeout);
  });
}

// Rank 0's progress thread is held up in its report, as in a process that is stopped.
TEST(QueueErrors, ARankZeroThatDoesNotAnswerIsNamed) {
  std::latch given_up(1);
  QueueOptions options{.mode = Mode::negotiated, .warn_after = 1ms, .shutdown_after = 20ms};
  options.report = [&](const std::string&) { given_up.wait(); };
  run_queues(2, options, [&](Queue& queue) {
    if (queue.rank() == Rank{0}) return given_up.wait();
    std::vector<float> data(4, 1.0f);
    const Handle handle = queue.submit(all_reduce_of(data, "unanswered"));
    while (!queue.help(handle, Deadline::in(1ms))) {
    }
    const Error error = failure_of([&] { queue.wait(handle); });
    given_up.count_down();
    EXPECT_EQ(error.kind, Kind::timeout);
    EXPECT_THAT(error.what, HasSubstr("'unanswered' waits for an answer of rank 0, which decides what runs, for more than 20 ms"));
  });
}

}  // namespace
}  // namespace cohort::queue
