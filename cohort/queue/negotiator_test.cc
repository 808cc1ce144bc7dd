#include "cohort/queue/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::queue {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Does = Verdict::Does;

constexpr Clock::time_point kStart{};
const Rules kPlain{.fusion_bytes = 0};

Signature reduce_of(std::int64_t count) { return {.verb = Verb::all_reduce, .parts = {{Dtype::f32, Device::cpu, {count}}}}; }
Signature of(Verb verb) { return {.verb = verb, .parts = {{Dtype::f32, Device::cpu, {kAnyLength}}}}; }

std::vector<std::string> names(const Verdict& verdict) {
  std::vector<std::string> all;
  for (const Named& named : verdict.whom) all.push_back(named.name);
  return all;
}

struct Table : testing::Test {
  explicit Table(int n = 3, Rules rules = kPlain) : negotiator(n, rules) {}
  void submit(int rank, const std::string& name, Clock::time_point at = kStart) { negotiator.submit(Rank{rank}, name, reduce_of(4), at); }
  void submit(int rank, const std::string& name, const Signature& s) { negotiator.submit(Rank{rank}, name, s, kStart); }
  std::vector<Verdict> take(Clock::time_point at = kStart) { return negotiator.take(at); }
  Negotiator negotiator;
};
using NegotiatorTest = Table;

TEST_F(NegotiatorTest, ANameRunsWhenTheLastRankHasSubmittedIt) {
  submit(0, "a"), submit(2, "a");
  EXPECT_THAT(take(), IsEmpty());
  submit(1, "a");
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::run);
  EXPECT_THAT(names(verdicts[0]), ElementsAre("a"));
  EXPECT_EQ(verdicts[0].whom[0].signature, reduce_of(4));
  EXPECT_THAT(take(), IsEmpty());
}

TEST_F(NegotiatorTest, NamesRunInTheOrderTheyBecomeCompleteWhateverTheOrdersOfTheRanks) {
  submit(0, "a"), submit(0, "b");
  submit(1, "b"), submit(1, "a");
  submit(2, "b"), submit(2, "a");
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(2));
  EXPECT_THAT(names(verdicts[0]), ElementsAre("b"));
  EXPECT_THAT(names(verdicts[1]), ElementsAre("a"));
}

TEST_F(NegotiatorTest, ANameMayRunAgain) {
  for (int round = 0; round < 3; ++round) {
    for (int r = 0; r < 3; ++r) submit(r, "a");
    EXPECT_THAT(take(), SizeIs(1));
  }
}

TEST_F(NegotiatorTest, AMismatchIsToldWhenAllHaveSubmittedAndOnlyThen) {
  submit(0, "a", reduce_of(4)), submit(1, "a", reduce_of(5));
  EXPECT_THAT(take(), IsEmpty());
  submit(2, "a", reduce_of(4));
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::refuse);
  EXPECT_EQ(verdicts[0].kind, Kind::usage);
  EXPECT_THAT(verdicts[0].text, HasSubstr("rank 0 has [4], rank 1 has [5]"));
  for (int r = 0; r < 3; ++r) submit(r, "a");
  EXPECT_EQ(take()[0].does, Does::run) << "the name is usable again";
}

TEST_F(NegotiatorTest, TheSameNameTwiceFromOneRankBreaksTheProtocol) {
  submit(1, "a");
  EXPECT_THROW(submit(1, "a"), Failure);
}

TEST_F(NegotiatorTest, JoinedRanksCountAsPresentForSums) {
  submit(0, "a"), submit(1, "a");
  negotiator.join(Rank{2});
  auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::run);
  submit(0, "b"), submit(1, "b");
  EXPECT_THAT(take(), SizeIs(1)) << "also what is submitted later";
}

TEST_F(NegotiatorTest, JoinIsDoneWhenAllHaveJoinedAndNamesTheLast) {
  for (int r : {1, 0}) negotiator.join(Rank{r});
  EXPECT_THAT(take(), IsEmpty());
  negotiator.join(Rank{2});
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::joined);
  EXPECT_EQ(verdicts[0].rank, Rank{2});
  submit(0, "a");
  EXPECT_THAT(take(), IsEmpty()) << "a new round: nobody has joined";
}

TEST_F(NegotiatorTest, WhatARankSubmittedBeforeItJoinedRunsBeforeTheJoinIsDone) {
  submit(0, "a");
  for (int r : {0, 1, 2}) negotiator.join(Rank{r});
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(2));
  EXPECT_EQ(verdicts[0].does, Does::run);
  EXPECT_EQ(verdicts[1].does, Does::joined);
}

TEST_F(NegotiatorTest, OperationsThatCannotBeJoinedAreRefusedWithTheReason) {
  Signature product = reduce_of(4);
  product.op = Op::product;
  const std::vector<std::pair<Signature, std::string>> cases{{of(Verb::all_gather), "allgather is not supported with join: rank 1 joined"},
                                                             {of(Verb::broadcast), "broadcast is not supported with join"},
                                                             {of(Verb::all_to_all), "alltoall is not supported with join"},
                                                             {of(Verb::reduce_scatter), "reducescatter is not supported with join"},
                                                             {product, "zeros of a joined rank would change its result"}};
  negotiator.join(Rank{1});
  for (const auto& [signature, text] : cases) {
    submit(0, "x", signature), submit(2, "x", signature);
    const auto verdicts = take();
    ASSERT_THAT(verdicts, SizeIs(1));
    EXPECT_EQ(verdicts[0].does, Does::refuse);
    EXPECT_THAT(verdicts[0].text, HasSubstr(text));
  }
}

TEST_F(NegotiatorTest, ABarrierPassesPendingOperationsAndJoinedRanks) {
  submit(0, "unmatched");
  negotiator.join(Rank{1});
  submit(0, "barrier", {.verb = Verb::barrier}), submit(2, "barrier", {.verb = Verb::barrier});
  const auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_THAT(names(verdicts[0]), ElementsAre("barrier"));
}

TEST_F(NegotiatorTest, WhatALeavingRankHasSubmittedMayStillRunAndTheRestIsRefused) {
  submit(0, "both"), submit(1, "both"), submit(0, "not mine");
  negotiator.leave(Rank{1});
  auto verdicts = take();
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].kind, Kind::aborted);
  EXPECT_THAT(verdicts[0].text, HasSubstr("rank 1 has shut its queue down without submitting 'not mine'"));
  submit(2, "both");
  EXPECT_EQ(take()[0].does, Does::run);
  submit(2, "later");
  EXPECT_EQ(take()[0].does, Does::refuse) << "at once: it can never run";
}

struct StallTest : Table {
  StallTest() : Table(3, {.fusion_bytes = 0, .warn_after = 5s, .shutdown_after = 20s}) {}
};

TEST_F(StallTest, TellsWhoWaitsForWhomAndWhatEachSubmittedLastOnce) {
  submit(0, "grad.1"), submit(1, "grad.1"), submit(1, "grad.2");
  EXPECT_EQ(negotiator.next_look(), kStart + 5s);
  EXPECT_THAT(take(kStart + 4s), IsEmpty());
  const auto verdicts = take(kStart + 5s);
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::stalled);
  EXPECT_THAT(names(verdicts[0]), ElementsAre("grad.1", "grad.2"));
  EXPECT_THAT(verdicts[0].text, HasSubstr("One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"));
  EXPECT_THAT(verdicts[0].text, HasSubstr("for more than 5 s"));
  EXPECT_THAT(verdicts[0].text,
              HasSubstr("Missing ranks:\n0: [grad.2]\n2: [grad.1, grad.2]\nLast submitted:\n0: grad.1\n1: grad.2\n2: nothing yet"));
  EXPECT_THAT(take(kStart + 6s), IsEmpty()) << "told once";
  EXPECT_EQ(negotiator.next_look(), kStart + 20s);
}

TEST_F(StallTest, ALaterStallIsToldInItsOwnTime) {
  submit(0, "a", kStart);
  take(kStart + 5s);
  submit(0, "b", kStart + 6s);
  EXPECT_EQ(negotiator.next_look(), kStart + 11s);
  const auto verdicts = take(kStart + 11s);
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_THAT(names(verdicts[0]), ElementsAre("b"));
}

TEST_F(StallTest, EndsEverythingAfterTheShutdownTime) {
  submit(0, "a"), submit(1, "a");
  take(kStart + 5s);
  const auto verdicts = take(kStart + 20s);
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].does, Does::closed);
  EXPECT_EQ(verdicts[0].kind, Kind::timeout);
  EXPECT_THAT(verdicts[0].text, HasSubstr("Missing ranks:\n2: [a]"));
  EXPECT_EQ(negotiator.next_look(), std::nullopt);
}

TEST_F(StallTest, NothingPendingMeansNothingToWatch) {
  for (int r = 0; r < 3; ++r) submit(r, "a");
  take();
  EXPECT_EQ(negotiator.next_look(), std::nullopt);
}

TEST(Negotiator, FusesWhatBecameReadyTogether) {
  Negotiator negotiator(2, {.fusion_bytes = 1024});
  for (int r = 0; r < 2; ++r)
    for (const char* name : {"a", "b", "c"}) negotiator.submit(Rank{r}, name, reduce_of(4), kStart);
  const auto verdicts = negotiator.take(kStart);
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_THAT(names(verdicts[0]), ElementsAre("a", "b", "c"));
}

TEST(Negotiator, CallsRanksByTheNumbersPeopleKnow) {
  Negotiator negotiator(2, {.fusion_bytes = 0, .spoken = {Rank{5}, Rank{7}}});
  negotiator.submit(Rank{0}, "a", reduce_of(4), kStart);
  negotiator.submit(Rank{1}, "a", reduce_of(3), kStart);
  const auto verdicts = negotiator.take(kStart);
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_THAT(verdicts[0].text, HasSubstr("rank 5 has [4], rank 7 has [3]"));
}

TEST(Negotiator, OneRankAloneNeedsNobody) {
  Negotiator negotiator(1, kPlain);
  negotiator.submit(Rank{0}, "a", reduce_of(4), kStart);
  negotiator.join(Rank{0});
  const auto verdicts = negotiator.take(kStart);
  ASSERT_THAT(verdicts, SizeIs(2));
  EXPECT_EQ(verdicts[1].rank, Rank{0});
}

}  // namespace
}  // namespace cohort::queue
