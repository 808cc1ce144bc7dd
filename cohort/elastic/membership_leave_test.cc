// Workers that leave as planned, and where the state goes with the last of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/elastic/membership_testing.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

TEST(Membership, ALeaverIsReleasedAfterItsStep) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(Leaving{1, "SIGTERM"}), "seal(3)");
  job.reports(1, 7);
  job.reports(2, 7);
  EXPECT_EQ(job.reports(3, 7), "2=e2r0/2@7 3=e2r1/2@7 release(1)");
}

TEST(Membership, TheOnlyHolderTransfersItsStateBeforeItLeaves) {
  auto r = rules();
  r.min_workers = 1;
  r.target_workers = 1;
  Job job(r);
  job.arrives(1);
  job.settled({1}, 0);
  EXPECT_EQ(job.arrives(2), "seal(1)");
  job.now(Leaving{1, "SIGTERM"});
  EXPECT_EQ(job.reports(1, 7), "1=e2r0/2@7 2=e2r1/2@7<0");
  EXPECT_EQ(job.settled({1, 2}, 7), "seal(2)");
  job.reports(1, 7);
  EXPECT_EQ(job.reports(2, 7), "2=e3r0/1@7 release(1)");
}

ElasticRules one_is_enough() {
  auto r = rules();
  r.min_workers = r.target_workers = 1;
  return r;
}

// The only holder of the state is released and is to save it; another worker has joined meanwhile.
void last_holder_saves(Job& job) {
  job.arrives(1);
  job.settled({1}, 0);
  job.now(Leaving{1, "SIGTERM"});
  EXPECT_EQ(job.reports(1, 7), "release(1,save)");
  EXPECT_EQ(job.arrives(2), "") << "it may still be writing";
}

TEST(Membership, TheLastOneToLeaveSavesTheState) {
  Job reports(one_is_enough());
  last_holder_saves(reports);
  EXPECT_EQ(reports.now(StateTransferred{1, Epoch{1}, kNoRank}), "2=e2r0/1@disk release(1)") << "a new worker reads it";
  Job ends(one_is_enough());
  last_holder_saves(ends);
  ends.now(LinkEnded{1});
  EXPECT_EQ(ends.now(ProcessEnded{WorkerId{1}, "exit status 0"}), "2=e2r0/1@disk");
}

TEST(Membership, AnEndedConnectionDoesNotShowThatTheStateWasSaved) {  // the release may not have been received
  Job job(one_is_enough());
  last_holder_saves(job);
  EXPECT_EQ(job.now(LinkEnded{1}), "");
  EXPECT_EQ(job.back(11, 1, 1, true, WorkerProgress{Epoch{1}, 7, false}), "11=e2r0/2@7 2=e2r1/2@7<0") << "it transfers the state";
  Job never(one_is_enough());
  last_holder_saves(never);
  EXPECT_EQ(never.now(LinkEnded{1}), "");
  EXPECT_EQ(never.waits(29, {2}), "");
  EXPECT_EQ(never.waits(2, {2}), "2=e2r0/1@disk");
}

TEST(Membership, ASaveIsWaitedForAsLongAsItsWriterSendsHeartbeats) {
  Job job(one_is_enough());
  last_holder_saves(job);
  EXPECT_EQ(job.waits(100, {1, 2}), "");
  EXPECT_THAT(job.messages(), HasSubstr("the state of membership epoch 1 is being saved"));
  EXPECT_EQ(job.waits(20, {2}), "") << "it may resume, or reconnect";
  EXPECT_EQ(job.waits(13, {2}), "2=e2r0/1@disk release(1)");
}

// Two workers: one leaves, prepared for step 8, while the other is unreachable and may have applied that step, or never have reached it.
TEST(Membership, AStepIsFinishedAloneAndSavedOnlyWhenAllThatMayReturnCanFinishItToo) {
  const auto leaves_prepared = [](Job& job, bool other_ended) {
    for (const int w : {1, 2}) job.arrives(w);
    job.waits(31, {1, 2});
    job.settled({1, 2}, 0);
    job.now(Leaving{1, "SIGTERM"});
    job.now(LinkEnded{2});
    if (other_ended) job.now(ProcessEnded{WorkerId{2}, "killed"});
    return job.reports(1, 7, true);
  };
  Job ended;
  EXPECT_EQ(leaves_prepared(ended, true), "release(1,save,finish)");
  for (const int w : {3, 4}) EXPECT_EQ(ended.arrives(w), "");
  EXPECT_EQ(ended.now(StateTransferred{1, Epoch{1}, kNoRank}), "3=e2r0/2@disk 4=e2r1/2@disk<0 release(1)");
  Job unreachable;
  EXPECT_EQ(leaves_prepared(unreachable, false), "release(1,save)") << "this does not make step 8 count";
  for (const int w : {3, 4}) EXPECT_EQ(unreachable.arrives(w), "");
  EXPECT_EQ(unreachable.now(StateTransferred{1, Epoch{1}, kNoRank}), "") << "there may be a later state";
  EXPECT_EQ(unreachable.back(12, 2, 1, true, WorkerProgress{Epoch{1}, 8, false}), "12=e2r0/3@8 3=e2r1/3@8<0 4=e2r2/3@8<0 release(1)");
}

TEST(Membership, ARestartedCoordinatorKnowsThatTheStateIsOnDisk) {
  Job before(one_is_enough());
  before.arrives(1);
  before.settled({1}, 0);
  before.now(Leaving{1, "SIGTERM"});
  before.reports(1, 7);
  before.now(StateTransferred{1, Epoch{1}, kNoRank});
  Job after(one_is_enough(), before.replayed());
  after.arrives(2);
  EXPECT_EQ(after.now(ProcessEnded{WorkerId{1}, "its process has ended"}), "2=e2r0/1@disk");
}

TEST(Membership, WithTheMajorityRuleLeaversCountUntilTheyHaveLeft) {
  auto r = rules();
  r.quorum = Quorum::majority;
  Job job(r);
  job.start();
  for (const int w : {1, 2}) job.now(Leaving{w, "SIGTERM"});
  job.now(LinkEnded{3});  // its exit was not seen
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "release(1,save) release(2)") << "there is no worker to transfer the state to";
  Job transferred(r);
  transferred.start();
  transferred.arrives(4);
  for (const int w : {1, 2}) transferred.now(Leaving{w, "SIGTERM"});
  transferred.now(LinkEnded{3});
  transferred.reports(1, 5);
  EXPECT_EQ(transferred.reports(2, 5), "1=e2r0/3@5 2=e2r1/3@5 4=e2r2/3@5<0") << "2 of 3 are reachable, and transfer their state";
}

// Two of four leave, and two others join that were not requested.
TEST(Membership, AnUnrequestedWorkerMakesUpForOneThatLeftAndIsReplacedLikeAnyOther) {
  auto r = rules();
  r.target_workers = 4;
  r.respawns = 9;
  Job job(r);
  for (const int w : {1, 2, 3, 4}) job.arrives(w);
  job.settled({1, 2, 3, 4}, 0);
  for (const int w : {3, 4}) job.now(Leaving{w, "its host goes"});
  for (const int w : {1, 2, 3, 4}) job.reports(w, 10);
  EXPECT_EQ(job.replayed().left, 2u);
  job.settled({1, 2}, 10);
  job.arrives(5);
  EXPECT_EQ(job.replayed().left, 1u);
  job.arrives(6);
  EXPECT_EQ(job.replayed().left, 0u);
  for (const int w : {1, 2}) job.reports(w, 20);
  ASSERT_EQ(job.membership().coordinator_state().roster.size(), 4u);
  job.settled({1, 2, 5, 6}, 20);
  Job after(r, job.replayed());
  for (const int w : {1, 2, 5, 6}) EXPECT_EQ(after.back(10 + w, w, 3, false, WorkerProgress{Epoch{3}, 20, false}), "");
  EXPECT_EQ(after.dies(16, 6), "seal(3,now) respawn(1)") << "a restarted coordinator knows it, too";
  EXPECT_EQ(job.dies(6), "seal(3,now) respawn(1)");
  EXPECT_EQ(job.arrives(7), "") << "this one was requested";
  EXPECT_EQ(job.dies(7), "respawn(1)");
}

TEST(Membership, ASurplusWorkerThatLeavesIsNotMissing) {
  auto r = rules();
  r.respawns = 9;
  Job job(r);
  job.start();
  job.arrives(4);
  for (const int w : {1, 2, 3}) job.reports(w, 5);
  job.settled({1, 2, 3, 4}, 5);
  job.now(Leaving{4, "SIGUSR1"});
  for (const int w : {1, 2, 3, 4}) job.reports(w, 10);
  EXPECT_EQ(job.replayed().left, 0u);
  job.settled({1, 2, 3}, 10);
  EXPECT_EQ(job.dies(3), "seal(2,now) respawn(1)");
}

TEST(Membership, ANewcomerThatLeavesBeforeItWasAdmittedIsNotReplaced) {
  auto r = rules();
  r.respawns = 9;
  Job job(r);
  job.start();
  EXPECT_EQ(job.dies(3), "seal(2,now) respawn(1)");
  job.arrives(4);
  EXPECT_EQ(job.now(Leaving{4, "SIGUSR1"}), "release(4)");
  EXPECT_EQ(job.replayed().left, 1u);
}

}  // namespace
}  // namespace cohort::elastic
