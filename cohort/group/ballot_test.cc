#include "cohort/group/ballot.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::group {
namespace {

using Phase = Ballot::Phase;

// In epoch 1 of term 1, after this step.
Ballot training(std::int64_t step = 10) {
  Ballot b;
  EXPECT_EQ(b.welcome(1, Epoch{1}, step, true), Settle::heal);
  b.settled(step);
  return b;
}

TEST(Ballot, AStepCountsOnceItWasVotedFor) {
  Ballot b = training();
  ASSERT_TRUE(b.prepare());
  EXPECT_EQ(b.standing(), (Standing{Epoch{1}, 10, true}));
  ASSERT_TRUE(b.decide());
  EXPECT_EQ(b.standing(), (Standing{Epoch{1}, 11, false}));
}

TEST(Ballot, ASealedOneNeitherVotesNorApplies) {
  Ballot open = training();
  EXPECT_EQ(open.seal(), (Standing{Epoch{1}, 10, false}));
  EXPECT_FALSE(open.prepare());
  Ballot prepared = training();
  ASSERT_TRUE(prepared.prepare());
  EXPECT_EQ(prepared.seal(), (Standing{Epoch{1}, 10, true}));
  EXPECT_FALSE(prepared.decide()) << "the next epoch says whether it counts";
  EXPECT_EQ(prepared.standing()->applied, 10);
}

TEST(Ballot, APreparedStepIsFinishedOrDroppedAsTheNextEpochSays) {
  for (const std::int64_t base : {10, 11}) {
    Ballot b = training();
    ASSERT_TRUE(b.prepare());
    b.seal();
    EXPECT_EQ(b.welcome(1, Epoch{2}, base, false), base == 10 ? Settle::discard : Settle::finish);
    EXPECT_EQ(b.seal()->epoch, Epoch{1}) << "until it has settled it reports what it has";
    b.settled(base);
    EXPECT_EQ(b.standing(), (Standing{Epoch{2}, base, false}));
    EXPECT_EQ(b.phase(), Phase::sealed) << "the state is there, the epoch is over";
  }
}

TEST(Ballot, RefusesAnEpochThatItCannotReach) {
  for (const std::int64_t base : {9, 11}) {
    Ballot b = training();
    b.seal();
    EXPECT_EQ(failure_of([&] { b.welcome(1, Epoch{2}, base, false); }).kind, Kind::bug) << base;
  }
}

TEST(Ballot, HeedsNoEarlierTermOrEpoch) {
  Ballot b = training();
  EXPECT_TRUE(b.heeds(1, Epoch{1}));
  b.seal();
  EXPECT_EQ(b.welcome(3, Epoch{2}, 10, false), Settle::stay);
  EXPECT_FALSE(b.heeds(2, Epoch{2}));
  EXPECT_FALSE(b.heeds(3, Epoch{1}));
  EXPECT_EQ(failure_of([&] { b.welcome(2, Epoch{3}, 10, false); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { b.welcome(3, Epoch{2}, 10, false); }).kind, Kind::bug);
}

TEST(Ballot, ANewcomerHasNoStateUntilItHasSettled) {
  Ballot b;
  EXPECT_EQ(b.welcome(1, Epoch{4}, std::nullopt, false), Settle::disk);
  EXPECT_FALSE(b.seal());
  EXPECT_EQ(b.welcome(1, Epoch{5}, 7, true), Settle::heal);
  EXPECT_FALSE(b.standing());
  b.settled(7);
  EXPECT_TRUE(b.standing());
  b.outside();
  EXPECT_FALSE(b.standing());
}

TEST(Ballot, WritesInTheNameOfItsOpenEpochOnly) {
  Ballot b = training();
  EXPECT_TRUE(b.may_write(Epoch{1}));
  EXPECT_FALSE(b.may_write(Epoch{0}));
  b.seal();
  EXPECT_FALSE(b.may_write(Epoch{1}));
  EXPECT_FALSE(Ballot{}.may_write(Epoch{0}));
}

TEST(Ballot, CallsOutOfOrderAreBugs) {
  Ballot outside;
  EXPECT_EQ(failure_of([&] { outside.prepare(); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { outside.settled(1); }).kind, Kind::bug);
  Ballot b = training();
  EXPECT_EQ(failure_of([&] { b.decide(); }).kind, Kind::bug);
}

}  // namespace
}  // namespace cohort::group
