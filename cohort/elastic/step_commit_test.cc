#include "cohort/elastic/step_commit.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::elastic {
namespace {

using Phase = StepCommit::Phase;

// In epoch 1 of term 1, after this step.
StepCommit in_training(std::int64_t step = 10) {
  StepCommit b;
  EXPECT_EQ(b.welcome(1, Epoch{1}, step, true), StateRecovery::heal);
  b.settled(step);
  return b;
}

TEST(StepCommit, AStepCountsOnceItWasVotedFor) {
  StepCommit b = in_training();
  ASSERT_TRUE(b.prepare());
  EXPECT_EQ(b.worker_progress(), (WorkerProgress{Epoch{1}, 10, true}));
  ASSERT_TRUE(b.decide());
  EXPECT_EQ(b.worker_progress(), (WorkerProgress{Epoch{1}, 11, false}));
}

TEST(StepCommit, ASealedOneNeitherVotesNorApplies) {
  StepCommit open = in_training();
  EXPECT_EQ(open.seal(), (WorkerProgress{Epoch{1}, 10, false}));
  EXPECT_FALSE(open.prepare());
  StepCommit prepared = in_training();
  ASSERT_TRUE(prepared.prepare());
  EXPECT_EQ(prepared.seal(), (WorkerProgress{Epoch{1}, 10, true}));
  EXPECT_FALSE(prepared.decide()) << "the next epoch says whether it counts";
  EXPECT_EQ(prepared.worker_progress()->applied, 10);
}

TEST(StepCommit, APreparedStepIsFinishedOrDroppedAsTheNextEpochSays) {
  for (const std::int64_t base : {10, 11}) {
    StepCommit b = in_training();
    ASSERT_TRUE(b.prepare());
    b.seal();
    EXPECT_EQ(b.welcome(1, Epoch{2}, base, false), base == 10 ? StateRecovery::discard : StateRecovery::finish);
    EXPECT_EQ(b.seal()->epoch, Epoch{1}) << "until it has settled it reports what it had";
    b.settled(base);
    EXPECT_EQ(b.worker_progress(), (WorkerProgress{Epoch{2}, base, false}));
    EXPECT_EQ(b.phase(), Phase::sealed) << "the state is there, the epoch is over";
  }
}

TEST(StepCommit, RefusesAnEpochThatItCannotReach) {
  for (const std::int64_t base : {9, 11}) {
    StepCommit b = in_training();
    b.seal();
    EXPECT_EQ(failure_of([&] { b.welcome(1, Epoch{2}, base, false); }).kind, Kind::bug) << base;
  }
}

TEST(StepCommit, AcceptsNoEarlierTermOrEpoch) {
  StepCommit b = in_training();
  EXPECT_TRUE(b.accepts(1, Epoch{1}));
  b.seal();
  EXPECT_EQ(b.welcome(3, Epoch{2}, 10, false), StateRecovery::stay);
  EXPECT_FALSE(b.accepts(2, Epoch{2}));
  EXPECT_FALSE(b.accepts(3, Epoch{1}));
  EXPECT_EQ(failure_of([&] { b.welcome(2, Epoch{3}, 10, false); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { b.welcome(3, Epoch{2}, 10, false); }).kind, Kind::bug);
}

TEST(StepCommit, ANewcomerHasNoStateUntilItHasSettled) {
  StepCommit b;
  EXPECT_EQ(b.welcome(1, Epoch{4}, std::nullopt, false), StateRecovery::disk);
  EXPECT_FALSE(b.seal());
  EXPECT_EQ(b.welcome(1, Epoch{5}, 7, true), StateRecovery::heal);
  EXPECT_FALSE(b.worker_progress());
  b.settled(7);
  EXPECT_TRUE(b.worker_progress());
  b.outside();
  EXPECT_FALSE(b.worker_progress());
}

TEST(StepCommit, WritesInTheNameOfItsOpenEpochOnly) {
  StepCommit b = in_training();
  EXPECT_TRUE(b.may_write(Epoch{1}));
  EXPECT_FALSE(b.may_write(Epoch{0}));
  b.seal();
  EXPECT_FALSE(b.may_write(Epoch{1}));
  EXPECT_FALSE(StepCommit{}.may_write(Epoch{0}));
}

TEST(StepCommit, CallsOutOfOrderAreBugs) {
  StepCommit outside;
  EXPECT_EQ(failure_of([&] { outside.prepare(); }).kind, Kind::bug);
  EXPECT_EQ(failure_of([&] { outside.settled(1); }).kind, Kind::bug);
  StepCommit b = in_training();
  EXPECT_EQ(failure_of([&] { b.decide(); }).kind, Kind::bug);
}

}  // namespace
}  // namespace cohort::elastic
