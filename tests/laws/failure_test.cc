// No call waits for ever: deadlines, departures and aborts end every wait with an error that names who and what, and failure is sticky.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "cohort/base/slowdown.h"
#include "cohort/collective/ranks.h"
#include "cohort/net/mixed.h"
#include "cohort/net/tcp/tcp.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

Error failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Failure& failure) {
    return failure.error();
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

class FailureLaws : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::unique_ptr<net::PeerLinks>> all_links(int ranks) {
    if (GetParam() == "tcp") return net::tcp_world(ranks);
    if (GetParam() == "shared") return net::loopback_world(ranks);
    std::vector<int> hosts(static_cast<std::size_t>(ranks), 0);  // mixed: the last rank is on a host of its own
    hosts.back() = 1;
    return net::mixed_world(hosts);
  }
  static void run(int ranks, const std::function<void(Communicator&)>& body) {
    std::latch all_open(ranks);  // one that failed earlier would end the others' start instead
    const auto together = [&](Communicator& comm) {
      all_open.count_down();
      for (const Deadline limit = Deadline::in(30s); !all_open.try_wait() && !limit.passed();) std::this_thread::sleep_for(1ms);
      body(comm);
    };
    run_ranks(ranks, together, {}, all_links);
  }
};
INSTANTIATE_TEST_SUITE_P(On, FailureLaws, ::testing::Values("shared", "tcp", "mixed"), [](const auto& given) { return given.param; });

}  // namespace

TEST_P(FailureLaws, AMissingRankIsNamedWhenTheDeadlinePasses) {
  run(3, [](Communicator& comm) {
    if (comm.rank().value == 2) return;  // it leaves after the others gave up, or before: both are errors that name it
    std::vector<float> values(100'000, 1.0F);
    const auto error = failure_of(
        [&] { comm.all_reduce(piece(std::span(values)), Op::sum, {.name = "grad", .deadline = Deadline::in(300ms * slowdown())}); });
    EXPECT_TRUE(error.kind == Kind::timeout || error.kind == Kind::peer_lost || error.kind == Kind::aborted) << error.what;
    EXPECT_THAT(error.what, HasSubstr("all_reduce 'grad'"));
    EXPECT_THAT(error.what, ::testing::ContainsRegex("rank 2|ranks .*2"));
  });
}

TEST_P(FailureLaws, ADepartedRankFailsEveryCollectiveOfTheOthersAndTheFailureStays) {
  run(3, [](Communicator& comm) {
    if (comm.rank().value == 1) return;
    std::vector<float> values(1000, 1.0F);
    const auto first = failure_of([&] { comm.all_reduce(piece(std::span(values)), Op::sum); });
    EXPECT_TRUE(first.kind == Kind::peer_lost || first.kind == Kind::aborted) << first.what;
    EXPECT_THAT(first.what, HasSubstr("rank 1"));
    const auto second = failure_of([&] { comm.barrier(); });
    EXPECT_THAT(second.what, HasSubstr("rank 1")) << "the root cause is kept";
  });
}

// Four ranks of which the second has what it wants and is gone before the third begins.
struct Leaving {
  Leaving(std::vector<std::unique_ptr<net::PeerLinks>> made, const std::function<void(Communicator&)>& last_words)
      : all_links(std::move(made)) {
    for (const int r : {0, 3})
      others.emplace_back([this, r] {
        const auto comm = start(r);
        all_open.count_down();
        if (r == 0) return over.wait();
        fails.wait();
        comm->abort({Kind::system, "out of memory", Rank{3}});
        over.wait();
      });
    std::jthread([&] { last_words(*start(1)); }).join();
    late = start(2);
    all_open.wait();
  }
  ~Leaving() {
    if (!fails.try_wait()) fails.count_down();
    over.count_down();
  }
  std::unique_ptr<Communicator> start(int r) { return open(std::move(all_links[static_cast<std::size_t>(r)]), {.timeout = Seconds{60}}); }
  std::vector<std::unique_ptr<net::PeerLinks>> all_links;
  std::latch all_open{2}, fails{1}, over{1};
  std::vector<std::jthread> others;
  std::unique_ptr<Communicator> late;
};

TEST_P(FailureLaws, ARankMayLeaveAsSoonAsItHasItsCommunicator) {
  Leaving four(all_links(4), [](Communicator&) {});
  EXPECT_THAT(failure_of([&] { four.late->barrier(); }).what, HasSubstr("rank 1 left"));
}

TEST_P(FailureLaws, WhatARankSentBeforeItLeftIsReceived) {
  std::vector<float> values(10, 7.0F);
  const Piece all = piece(std::span(values));
  Leaving four(all_links(4), [&](Communicator& comm) {
    for (const std::uint32_t tag : {5, 6}) comm.send(all, Rank{2}, tag);
  });
  values.assign(10, 0.0F);
  four.late->recv(all, Rank{1}, 5);
  EXPECT_EQ(values[9], 7.0F);
  EXPECT_EQ(four.late->next(6, 6).bytes.size(), all.bytes());
  EXPECT_THAT(failure_of([&] { four.late->recv(all, Rank{1}, 7); }).what, HasSubstr("rank 1 left"));
}

// Rank 1 has left. When rank 3 fails, ranks that wait for rank 0 get that cause, and not that rank 1 left.
TEST_P(FailureLaws, AFailureIsReportedThoughAnotherRankLeftBefore) {
  Leaving four(all_links(4), [](Communicator&) {});
  std::vector<float> values(10);
  const auto wait = [&] { four.late->recv(piece(std::span(values)), Rank{0}, 7, {.deadline = Deadline::in(30s)}); };
  four.fails.count_down();
  EXPECT_THAT(failure_of(wait).what, HasSubstr("out of memory"));
}

TEST_P(FailureLaws, AbortFromAnotherThreadEndsACollectiveOnAllRanks) {
  run(3, [](Communicator& comm) {
    std::vector<float> here(1, 1.0F);  // an abort that came earlier would end the peers' start instead
    if (comm.rank().value != 0) comm.send(piece(std::span(here)), Rank{0}, 7);
    for (int r = 1; comm.rank().value == 0 && r < comm.size(); ++r) comm.recv(piece(std::span(here)), Rank{r}, 7);
    std::jthread killer;
    if (comm.rank().value == 0) killer = std::jthread([&] { comm.abort({Kind::aborted, "the user pressed stop", Rank{0}}); });
    std::vector<float> values(10, 1.0F);
    const auto error = failure_of([&] {
      for (;;) {
        if (comm.rank().value == 2) comm.recv(piece(std::span(values)), Rank{1}, 5);  // no rank sends
        comm.all_reduce(piece(std::span(values)), Op::sum);
      }
    });
    EXPECT_THAT(error.what, HasSubstr("the user pressed stop"));
  });
}

TEST(TwoThreads, InOneCommunicatorAreRefusedNotMixed) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> values(4, 1.0F);
    if (comm.rank().value == 1) {
      comm.recv(piece(std::span(values)), Rank{0}, 1);  // until rank 0 has seen its second thread refused
      return comm.all_reduce(piece(std::span(values)), Op::sum, {.name = "first"});
    }
    std::atomic<int> refused{0};
    const auto attempt = [&] {  // one of the two is inside until rank 1 comes, and rank 1 comes when the other was refused
      std::vector<float> mine(4, 1.0F);
      try {
        comm.all_reduce(piece(std::span(mine)), Op::sum, {.name = "first"});
      } catch (const Failure& failure) {
        EXPECT_THAT(failure.what(), HasSubstr("another thread"));
        ++refused;
        comm.send(piece(std::span(mine)), Rank{1}, 1);
      }
    };
    std::jthread other(attempt);
    attempt();
    other.join();
    EXPECT_EQ(refused, 1);
  });
}

TEST_P(FailureLaws, CommunicatorsRunSideBySideOnSeveralThreads) {
  run(4, [](Communicator& comm) {
    constexpr int kFlows = 3;
    std::vector<std::unique_ptr<Communicator>> children;
    for (int child = 0; child < kFlows; ++child) children.push_back(comm.split(0));
    std::vector<std::jthread> threads;
    for (int child = 0; child < kFlows; ++child)
      threads.emplace_back([&, child] {
        auto& mine = *children[static_cast<std::size_t>(child)];
        for (int i = 1; i <= 50; ++i) {
          std::vector<float> values(static_cast<std::size_t>(i * 997 * (child + 1)), static_cast<float>(child + 1));
          mine.all_reduce(piece(std::span(values)), Op::sum);
          ASSERT_EQ(values.back(), 4.0F * static_cast<float>(child + 1));
        }
      });
    threads.clear();
    comm.barrier();
  });
}

}  // namespace cohort::collective
