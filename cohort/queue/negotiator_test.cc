#include "cohort/queue/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::queue {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Action = Decision::Action;

constexpr Clock::time_point kStart{};
const Rules kPlain{.fusion_bytes = 0};

Signature reduce_of(std::int64_t count) { return {.collective = Collective::all_reduce, .parts = {{Dtype::f32, Device::cpu, {count}}}}; }
Signature of(Collective collective) { return {.collective = collective, .parts = {{Dtype::f32, Device::cpu, {kAnyLength}}}}; }

std::vector<std::string> names(const Decision& decision) {
  std::vector<std::string> all;
  for (const NamedSignature& named : decision.affected) all.push_back(named.name);
  return all;
}

struct Table : testing::Test {
  explicit Table(int n = 3, Rules rules = kPlain) : negotiator(n, rules) {}
  void submit(int rank, const std::string& name, Clock::time_point at = kStart) { negotiator.submit(Rank{rank}, name, reduce_of(4), at); }
  void submit(int rank, const std::string& name, const Signature& s) { negotiator.submit(Rank{rank}, name, s, kStart); }
  std::vector<Decision> take(Clock::time_point at = kStart) { return negotiator.take(at); }
  Negotiator negotiator;
};
using NegotiatorTest = Table;

TEST_F(NegotiatorTest, ANameRunsWhenTheLastRankHasSubmittedIt) {
  submit(0, "a"), submit(2, "a");
  EXPECT_THAT(take(), IsEmpty());
  submit(1, "a");
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::run);
  EXPECT_THAT(names(decisions[0]), ElementsAre("a"));
  EXPECT_EQ(decisions[0].affected[0].signature, reduce_of(4));
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(NegotiatorTest, NamesRunInTheOrderTheyBecomeCompleteWhateverTheOrdersOfTheRanks) {
  submit(0, "a"), submit(0, "b");
  submit(1, "b"), submit(1, "a");
  submit(2, "b"), submit(2, "a");
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(2));
  EXPECT_THAT(names(decisions[0]), ElementsAre("b"));
  EXPECT_THAT(names(decisions[1]), ElementsAre("a"));
}

TEST_F(NegotiatorTest, ANameMayRunAgain) {
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < 3; ++r) submit(r, "a");
    EXPECT_THAT(take(), SizeIs(1));
  }
}

TEST_F(NegotiatorTest, AMismatchIsReportedWhenAllHaveSubmittedAndOnlyThen) {
  submit(0, "a", reduce_of(4)), submit(1, "a", reduce_of(5));
  EXPECT_THAT(take(), IsEmpty());
  submit(2, "a", reduce_of(4));
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::refuse);
  EXPECT_EQ(decisions[0].kind, Kind::usage);
  EXPECT_THAT(decisions[0].text, HasSubstr("rank 0 has [4], rank 1 has [5]"));
  for (int r = 0; r < 3; ++r) submit(r, "a");
  EXPECT_EQ(take()[0].action, Action::run) << "the name is usable again";
}

TEST_F(NegotiatorTest, TheSameNameTwiceFromOneRankBreaksTheProtocol) {
  submit(1, "a");
  EXPECT_THROW(submit(1, "a"), Failure);
}

TEST_F(NegotiatorTest, JoinedRanksCountAsPresentForSums) {
  submit(0, "a"), submit(1, "a");
  negotiator.join(Rank{2}, kStart);
  auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::run);
  submit(0, "b"), submit(1, "b");
  EXPECT_THAT(take(), SizeIs(1)) << "also what is submitted later";
}

TEST_F(NegotiatorTest, JoinIsDoneWhenAllHaveJoinedAndNamesTheLast) {
  for (int r : {1, 0}) negotiator.join(Rank{r}, kStart);
  EXPECT_THAT(take(), IsEmpty());
  negotiator.join(Rank{2}, kStart);
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::joined);
  EXPECT_EQ(decisions[0].rank, Rank{2});
  submit(0, "a");
  EXPECT_THAT(take(), IsEmpty()) << "a new round: nobody has joined";
}

TEST_F(NegotiatorTest, WhatARankSubmittedBeforeItJoinedRunsBeforeTheJoinIsDone) {
  submit(0, "a");
  for (int r : {0, 1, 2}) negotiator.join(Rank{r}, kStart);
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(2));
  EXPECT_EQ(decisions[0].action, Action::run);
  EXPECT_EQ(decisions[1].action, Action::joined);
}

TEST_F(NegotiatorTest, OperationsThatCannotBeJoinedAreRefusedWithTheReason) {
  Signature product = reduce_of(4);
  product.op = Op::product;
  const std::vector<std::pair<Signature, std::string>> cases{
      {of(Collective::all_gather), "allgather is not supported with join: rank 1 joined"},
      {of(Collective::broadcast), "broadcast is not supported with join"},
      {of(Collective::all_to_all), "alltoall is not supported with join"},
      {of(Collective::reduce_scatter), "reducescatter is not supported with join"},
      {product, "zeros of a joined rank would change its result"}};
  negotiator.join(Rank{1}, kStart);
  for (const auto& [signature, text] : cases) {
    submit(0, "x", signature), submit(2, "x", signature);
    const auto decisions = take();
    ASSERT_THAT(decisions, SizeIs(1));
    EXPECT_EQ(decisions[0].action, Action::refuse);
    EXPECT_THAT(decisions[0].text, HasSubstr(text));
  }
}

TEST_F(NegotiatorTest, ABarrierPassesPendingOperationsAndJoinedRanks) {
  submit(0, "unmatched");
  negotiator.join(Rank{1}, kStart);
  submit(0, "barrier", {.collective = Collective::barrier}), submit(2, "barrier", {.collective = Collective::barrier});
  const auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_THAT(names(decisions[0]), ElementsAre("barrier"));
}

TEST_F(NegotiatorTest, WhatALeavingRankHasSubmittedMayStillRunAndTheRestIsRefused) {
  submit(0, "both"), submit(1, "both"), submit(0, "not mine");
  negotiator.leave(Rank{1});
  auto decisions = take();
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].kind, Kind::aborted);
  EXPECT_THAT(decisions[0].text, HasSubstr("rank 1 has shut its queue down without submitting 'not mine'"));
  submit(2, "both");
  EXPECT_EQ(take()[0].action, Action::run);
  submit(2, "later");
  EXPECT_EQ(take()[0].action, Action::refuse) << "at once: it can never run";
}

struct StallTest : Table {
  StallTest() : Table(3, {.fusion_bytes = 0, .warn_after = 5s, .shutdown_after = 20s, .limit_name = "COHORT_TIMEOUT"}) {}
};

TEST_F(StallTest, ReportsTheMissingRanksAndWhatEachSubmittedLastOnce) {
  submit(0, "grad.1"), submit(1, "grad.1"), submit(1, "grad.2");
  EXPECT_EQ(negotiator.next_tick(), kStart + 5s);
  EXPECT_THAT(take(kStart + 4s), IsEmpty());
  const auto decisions = take(kStart + 5s);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::stalled);
  EXPECT_THAT(names(decisions[0]), ElementsAre("grad.1", "grad.2"));
  EXPECT_THAT(decisions[0].text, HasSubstr("One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"));
  EXPECT_THAT(decisions[0].text, HasSubstr("for more than 5 s"));
  EXPECT_THAT(decisions[0].text,
              HasSubstr("Missing ranks:\n0: [grad.2]\n2: [grad.1, grad.2]\nLast submitted:\n0: grad.1\n1: grad.2\n2: nothing yet"));
  EXPECT_THAT(take(kStart + 6s), IsEmpty()) << "reported once";
  EXPECT_EQ(negotiator.next_tick(), kStart + 20s);
}

TEST_F(StallTest, ALaterStallIsReportedInItsOwnTime) {
  submit(0, "a", kStart);
  take(kStart + 5s);
  submit(0, "b", kStart + 6s);
  EXPECT_EQ(negotiator.next_tick(), kStart + 11s);
  const auto decisions = take(kStart + 11s);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_THAT(names(decisions[0]), ElementsAre("b"));
}

TEST_F(StallTest, EndsEverythingAfterTheShutdownTime) {
  submit(0, "a"), submit(1, "a");
  take(kStart + 5s);
  const auto decisions = take(kStart + 20s);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::closed);
  EXPECT_EQ(decisions[0].kind, Kind::timeout);
  EXPECT_THAT(decisions[0].text, HasSubstr("Missing ranks:\n2: [a]"));
  EXPECT_EQ(negotiator.next_tick(), std::nullopt);
}

TEST_F(StallTest, EndsAJoinWhenTheOthersStayOut) {
  negotiator.join(Rank{0}, kStart);
  EXPECT_EQ(negotiator.next_tick(), kStart + 20s);
  submit(1, "a", kStart + 10s), submit(2, "a", kStart + 15s);
  EXPECT_EQ(take(kStart + 15s).at(0).action, Action::run);
  EXPECT_EQ(negotiator.next_tick(), kStart + 35s) << "the others are at work";
  EXPECT_THAT(take(kStart + 34s), IsEmpty());
  const auto decisions = take(kStart + 35s);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_EQ(decisions[0].action, Action::closed);
  EXPECT_THAT(decisions[0].text, HasSubstr("rank 0 called join and ranks 1, 2 did not, nor submitted anything for more than 20 s.\n"
                                           "Last submitted:\n0: join\n1: a\n2: a\nThe limit of 20 s (COHORT_TIMEOUT) has passed"));
  EXPECT_EQ(negotiator.next_tick(), std::nullopt);
}

TEST_F(StallTest, NothingPendingMeansNothingToWatch) {
  for (int r = 0; r < 3; ++r) submit(r, "a");
  take();
  EXPECT_EQ(negotiator.next_tick(), std::nullopt);
}

TEST(Negotiator, FusesWhatBecameReadyTogether) {
  Negotiator negotiator(2, {.fusion_bytes = 1024});
  for (int r = 0; r < 2; ++r)
    for (const char* name : {"a", "b", "c"}) negotiator.submit(Rank{r}, name, reduce_of(4), kStart);
  const auto decisions = negotiator.take(kStart);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_THAT(names(decisions[0]), ElementsAre("a", "b", "c"));
}

TEST(Negotiator, NamesRanksByTheirLabels) {
  Negotiator negotiator(2, {.fusion_bytes = 0, .rank_labels = {Rank{5}, Rank{7}}});
  negotiator.submit(Rank{0}, "a", reduce_of(4), kStart);
  negotiator.submit(Rank{1}, "a", reduce_of(3), kStart);
  const auto decisions = negotiator.take(kStart);
  ASSERT_THAT(decisions, SizeIs(1));
  EXPECT_THAT(decisions[0].text, HasSubstr("rank 5 has [4], rank 7 has [3]"));
}

TEST(Negotiator, OneRankAloneNeedsNoOther) {
  Negotiator negotiator(1, kPlain);
  negotiator.submit(Rank{0}, "a", reduce_of(4), kStart);
  negotiator.join(Rank{0}, kStart);
  const auto decisions = negotiator.take(kStart);
  ASSERT_THAT(decisions, SizeIs(2));
  EXPECT_EQ(decisions[1].rank, Rank{0});
}

}  // namespace
}  // namespace cohort::queue
