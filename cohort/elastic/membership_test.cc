// How epochs begin, how workers are lost, replaced and admitted, and how a job ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/elastic/membership_testing.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

TEST(Membership, StartsWhenTheTargetNumberHasJoined) {
  Job job;
  EXPECT_EQ(job.arrives(1), "");
  EXPECT_EQ(job.arrives(2), "");
  EXPECT_EQ(job.arrives(3), "1=e1r0/3@disk 2=e1r1/3@disk<0 3=e1r2/3@disk<0");
  EXPECT_EQ(job.last().entries.size(), 1u) << "on disk before it is sent";
}

TEST(Membership, StartsWithFewerWhenTheGraceIsOver) {
  Job job;
  job.arrives(1);
  job.arrives(2);
  EXPECT_EQ(job.waits(29.5, {1, 2}), "");
  EXPECT_THAT(job.messages(), HasSubstr("2 of 3 workers have joined; after 30 s 2 are enough"));
  EXPECT_EQ(job.waits(1, {1, 2}), "1=e1r0/2@disk 2=e1r1/2@disk<0");
}

TEST(Membership, AMemberThatFailsTheJobEndsItForAll) {
  Job job;
  job.start();
  const Error why{Kind::corrupt, "rank 2 holds other values", kNoRank};
  EXPECT_EQ(job.now(JobFailed{2, why}), "stop(corrupt)");
  EXPECT_THAT(job.messages(), HasSubstr("job 'j' gives up: rank 2 holds other values"));
  EXPECT_EQ(job.now(JobFailed{1, why}), "") << "all of them may report it, one is enough";
  EXPECT_EQ(job.now(LinkEnded{1}), "");
  Job other;
  other.start();
  other.arrives(4);
  EXPECT_EQ(other.now(JobFailed{4, why}), "") << "only a member can know";
}

TEST(Membership, SurvivorsContinueFromTheStepThatAllOfThemCanReach) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(LinkEnded{2}), "seal(2,now)");
  EXPECT_EQ(job.reports(1, 10, true), "");
  EXPECT_EQ(job.reports(3, 11), "1=e2r0/2@11 3=e2r1/2@11") << "rank 2 applied step 11, so rank 0 can and must";
  EXPECT_THAT(job.messages(), HasSubstr("rank 1 (process 1002 on here) is lost: its connection ended"));
}

TEST(Membership, AStepThatOneSurvivorWasNotPreparedForIsDoneAgain) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10, true);
  EXPECT_EQ(job.reports(3, 10, false), "1=e2r0/2@10 3=e2r1/2@10");
}

TEST(Membership, AStepThatAllSurvivorsWerePreparedForIsKept) {  // the lost one may have applied it
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10, true);
  EXPECT_EQ(job.reports(3, 10, true), "1=e2r0/2@11 3=e2r1/2@11");
}

TEST(Membership, WorkersThatBrokeTheProtocolStopTheJob) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10);
  EXPECT_EQ(job.reports(3, 11), "stop(bug)");
  EXPECT_THAT(job.messages(), HasSubstr("rank 2 (process 1003 on here) has applied step 11"));
}

TEST(Membership, SilenceForThreeHeartbeatsIsALoss) {
  Job job;
  job.start();
  EXPECT_EQ(job.waits(1.9, {1, 3}), "");
  EXPECT_EQ(job.waits(0.2, {1, 3}), "seal(3,now)");
  job.reports(1, 4);
  EXPECT_EQ(job.reports(3, 4), "1=e2r0/2@4 3=e2r1/2@4 evict(2)") << "evicted now, not before the next epoch is certain";
}

TEST(Membership, AResumedWorkerThatReportsInTimeIsKept) {
  Job job;
  job.start();
  job.waits(2.1, {1, 3});
  job.reports(1, 4);
  job.now(Heartbeat{2});
  EXPECT_EQ(job.reports(3, 4), "") << "it is reachable again and may have state";
  EXPECT_EQ(job.reports(2, 4), "1=e2r0/3@4 2=e2r1/3@4 3=e2r2/3@4");
}

TEST(Membership, AWorkerWithHeartbeatsThatNeverReportsIsEvicted) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 4);
  EXPECT_EQ(job.waits(9.5, {1, 3}), "");
  EXPECT_EQ(job.waits(1, {1, 3}), "");
  EXPECT_THAT(job.messages(), HasSubstr("rank 2 (process 1003 on here) is lost: it did not report its progress within 10 s"));
  EXPECT_EQ(job.membership().coordinator_state().epoch, Epoch{1}) << "one of at least two is there";
  EXPECT_EQ(job.arrives(5), "1=e2r0/2@4 5=e2r1/2@4<0 evict(3)");
}

TEST(Membership, ANewcomerIsAdmittedAtTheEndOfAStepAndReceivesTheStateFromAPeer) {
  Job job;
  job.start();
  EXPECT_EQ(job.arrives(4), "seal(3)") << "not urgent: nothing is lost";
  job.reports(1, 7);
  job.reports(2, 7);
  EXPECT_EQ(job.reports(3, 7), "1=e2r0/4@7 2=e2r1/4@7 3=e2r2/4@7 4=e2r3/4@7<0");
  EXPECT_EQ(job.arrives(5), "") << "the job is full";
  EXPECT_THAT(job.messages(), HasSubstr("process 1005 on here waits: the job has its 4 workers"));
}

TEST(Membership, AnEpochThatStillSettlesIsNotDisturbedByNewcomers) {
  Job job;
  for (const int w : {1, 2, 3}) job.arrives(w);
  job.settled({1, 2}, 0);
  EXPECT_EQ(job.arrives(4), "");
  EXPECT_EQ(job.settled({3}, 0), "seal(3)");
}

TEST(Membership, WaitsBelowTheLeastNumberAndThenGivesUp) {
  auto r = rules();
  r.wait_limit = 60;
  Job job(r);
  job.start();
  job.now(LinkEnded{2});
  job.now(LinkEnded{3});
  EXPECT_EQ(job.reports(1, 5), "");
  EXPECT_THAT(job.messages(), HasSubstr("waiting (0 s of 60 s): 1 of at least 2 workers"));
  EXPECT_EQ(job.waits(30, {1}), "");
  EXPECT_EQ(job.arrives(4), "1=e2r0/2@5 4=e2r1/2@5<0") << "a new worker ends the wait";
  job.settled({1, 4}, 5);
  job.now(LinkEnded{4});
  job.reports(1, 9);
  EXPECT_EQ(job.waits(59.5, {1}), "") << "the wait starts again";
  EXPECT_EQ(job.waits(1, {1}), "stop(timeout)");
}

TEST(Membership, LostWorkersAreReplacedAsOftenAsAllowed) {
  auto r = rules();
  r.respawns = 2;
  Job job(r);
  job.start();
  EXPECT_EQ(job.dies(2), "seal(2,now) respawn(1)");
  EXPECT_EQ(job.now(SpawnFailed{"no room"}), "respawn(1)");
  EXPECT_EQ(job.now(SpawnFailed{"no room"}), "") << "twice is enough";
  EXPECT_EQ(job.replayed().respawned, 2u);
}

TEST(Membership, AWorkerWhoseConnectionsAreResetAgainAndAgainIsNotReplaced) {
  auto r = rules();
  r.respawns = 100;
  Job job(r);
  job.start();
  int connection = 100, mine = 2;
  std::uint64_t id = 2;
  for (std::uint32_t epoch = 1; epoch < 10; ++epoch) {
    job.now(LinkEnded{mine});
    for (const int w : {1, 3}) job.reports(w, epoch);
    job.settled({1, 3}, epoch);
    const Worker before{WorkerId{id}, Job::as(2).member};
    EXPECT_THAT(job.now(Arrive{++connection, before, job.replayed().epoch, false, false, {}}), HasSubstr("evict"));
    mine = ++connection;
    job.now(Arrive{mine, {WorkerId{id = 1000 + epoch}, before.member}, {}, false, false, {}});
    for (const int w : {1, 3}) job.reports(w, epoch);
    job.settled({1, 3, mine}, epoch);
    ASSERT_EQ(job.replayed().roster.size(), 3u);
  }
  EXPECT_EQ(job.replayed().respawned, 0u);
  EXPECT_EQ(job.now(LinkEnded{mine}), "seal(2,now)");
  EXPECT_EQ(job.waits(2.1, {1, 3}), "respawn(1)") << "one that does not come back in time is";
}

TEST(Membership, AWorkerThatWasReplacedEndsWhenItComesBack) {
  auto r = rules();
  r.respawns = 9;
  Job job(r);
  job.start();
  job.now(LinkEnded{2});
  EXPECT_EQ(job.waits(2.1, {1, 3}), "respawn(1)");
  for (const int w : {1, 3}) job.reports(w, 5);
  job.arrives(4);
  EXPECT_EQ(job.now(Arrive{12, Job::as(2), Epoch{1}, false, true, WorkerProgress{Epoch{1}, 5, false}}), "evict(12)");
  EXPECT_EQ(job.now(Arrive{13, {WorkerId{99}, Job::as(2).member}, {}, false, false, {}}), "release(13)");
  EXPECT_THAT(job.messages(), HasSubstr("process 1002 on here is back after another took its place: it ends"));
}

TEST(Membership, WorkersThatEndBeforeTheFirstEpochAreReplacedAsOftenAsAllowed) {
  auto r = rules();
  r.respawns = 4;
  Job job(r);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(job.now(SpawnFailed{"killed by SIGKILL"}), "respawn(1)");
  EXPECT_EQ(job.arrives(1), "");
  EXPECT_EQ(job.dies(1), "respawn(1)") << "one that had connected";
  EXPECT_EQ(job.now(SpawnFailed{"killed by SIGKILL"}), "") << "four times is enough";
  for (const int w : {2, 3}) job.arrives(w);
  EXPECT_THAT(job.waits(30.1, {2, 3}), HasSubstr("2=e1r0/2@disk"));
}

TEST(Membership, KnowsWhetherAStepWasCommitted) {
  Job job;
  for (const int w : {1, 2, 3}) job.arrives(w);
  job.settled({1, 2, 3}, 7);
  EXPECT_FALSE(job.membership().committed()) << "all begin at step 7, of a checkpoint";
  job.settled({2}, 8);
  EXPECT_TRUE(job.membership().committed());
  Job sealed;
  sealed.start();
  sealed.reports(1, 0, true);
  EXPECT_FALSE(sealed.membership().committed());
  sealed.reports(2, 1);
  EXPECT_TRUE(sealed.membership().committed());
}

TEST(Membership, WithoutAReachableMemberNothingIsFormed) {  // they may be training behind a partition
  auto r = rules();
  r.wait_limit = 60;
  Job job(r);
  job.start();
  for (const int g : {1, 2, 3}) job.now(LinkEnded{g});
  job.arrives(4);
  EXPECT_EQ(job.arrives(5), "");
  EXPECT_THAT(job.messages(), HasSubstr("not all are known to have ended: they may still be training"));
  for (const int w : {1, 2}) EXPECT_EQ(job.now(ProcessEnded{WorkerId{static_cast<std::uint64_t>(w)}, "killed"}), "");
  EXPECT_EQ(job.now(ProcessEnded{WorkerId{3}, "killed"}), "4=e2r0/2@disk 5=e2r1/2@disk<0") << "now it is known";
}

TEST(Membership, ASilentHolderIsWaitedForBeforeTheDiskIsRead) {
  Job job;
  job.start();
  for (const int g : {2, 3}) job.now(LinkEnded{g});
  for (const std::uint64_t w : {2, 3}) job.now(ProcessEnded{WorkerId{w}, "killed"});
  job.reports(1, 9);
  job.waits(2.5, {});  // the last holder of the state, sealed, is paused
  job.arrives(4);
  EXPECT_EQ(job.arrives(5), "");
  EXPECT_EQ(job.waits(20, {4, 5}), "") << "it may return";
  EXPECT_EQ(job.now(Heartbeat{1}), "1=e2r0/3@9 4=e2r1/3@9<0 5=e2r2/3@9<0");
}

TEST(Membership, WithTheMajorityRuleHalfIsNotEnough) {
  auto r = rules();
  r.target_workers = 4;
  r.quorum = Quorum::majority;
  Job job(r);
  for (const int w : {1, 2, 3, 4}) job.arrives(w);
  job.settled({1, 2, 3, 4}, 0);
  job.now(LinkEnded{3});
  job.now(LinkEnded{4});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "");
  EXPECT_THAT(job.messages(), HasSubstr("2 of the 4 workers of membership epoch 1 are reachable, which is no majority"));
  EXPECT_EQ(job.now(ProcessEnded{WorkerId{4}, "killed"}), "1=e2r0/2@5 2=e2r1/2@5") << "2 of 3 that may be alive";
}

TEST(Membership, EndsWhenAllMembersHaveEnded) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(Ended{1, 100}), "");
  EXPECT_EQ(job.now(LinkEnded{2}), "") << "training is over: no epoch follows";
  EXPECT_EQ(job.now(Ended{3, 100}), "stop");
  EXPECT_EQ(job.replayed().finished, 100);
  EXPECT_EQ(job.arrives(9), "stop(aborted)");
}

TEST(Membership, MessagesOfOldConnectionsAndEpochsChangeNothing) {
  Job job;
  job.start();
  EXPECT_EQ(job.back(21, 1, 1, false, WorkerProgress{Epoch{1}, 3, false}), "") << "a new connection of the same worker";
  EXPECT_EQ(job.now(LinkEnded{1}), "") << "the old one ends";
  EXPECT_EQ(job.now(Reported{21, Epoch{0}, {}}), "");
  EXPECT_EQ(job.now(PeerUnreachable{21, Epoch{0}, Rank{1}}), "");
  EXPECT_EQ(job.now(PeerUnreachable{21, Epoch{1}, Rank{17}}), "");
  EXPECT_EQ(job.now(Heartbeat{99}), "");
}

TEST(Membership, RefusesImpossibleRules) {
  auto r = rules();
  r.max_workers = 1;
  EXPECT_EQ(failure_of([&] { Membership(r, {}, 0); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::elastic
