// A coordinator that is restarted from its log, or was suspended.
#include <gtest/gtest.h>

#include "cohort/elastic/membership_testing.h"

namespace cohort::elastic {
namespace {

TEST(Membership, ARestartedCoordinatorContinuesTheEpochWhenAllReconnect) {
  Job before;
  before.start();
  Job after(rules(), before.replayed());
  EXPECT_EQ(after.replayed().term, 2u);
  for (const int w : {1, 2}) EXPECT_EQ(after.back(10 + w, w, 1, false, WorkerProgress{Epoch{1}, 20, false}), "");
  EXPECT_EQ(after.waits(4, {11, 12}), "");
  EXPECT_EQ(after.back(13, 3, 1, false, WorkerProgress{Epoch{1}, 20, true}), "");
  EXPECT_TRUE(after.membership().settled()) << "nothing was lost, nothing changes";
}

TEST(Membership, ARestartedCoordinatorEvictsMembersThatDoNotReconnect) {
  Job before;
  before.start();
  Job after(rules(), before.replayed());
  for (const int w : {1, 2}) after.back(10 + w, w, 1, false, WorkerProgress{Epoch{1}, 20, false});
  EXPECT_EQ(after.waits(5.1, {11, 12}), "seal(2,now)");
}

TEST(Membership, ARestartedCoordinatorReplacesNoWorkerThatLeftOfItsOwnWill) {
  auto r = rules();
  r.respawns = 9;
  Job before(r);
  before.start();
  before.now(Leaving{2, "SIGUSR1"});
  for (const int g : {1, 2, 3}) before.reports(g, 10);
  before.settled({1, 3}, 10);
  EXPECT_EQ(before.replayed().left, 1u);
  Job after(r, before.replayed());
  for (const int w : {1, 3}) EXPECT_EQ(after.back(10 + w, w, 2, false, WorkerProgress{Epoch{2}, 20, false}), "");
  EXPECT_EQ(after.waits(60, {11, 13}), "");
  EXPECT_EQ(after.dies(13, 3), "seal(1,now) respawn(1)") << "one that is lost";
}

TEST(Membership, ARestartedCoordinatorWaitsForRunningWorkersBeforeItRequestsMore) {
  auto r = rules();
  r.respawns = 9;
  Job before(r);
  before.start();
  EXPECT_EQ(before.now(LinkEnded{2}), "seal(2,now)");
  EXPECT_EQ(before.waits(2.1, {1, 3}), "respawn(1)");
  Job after(r, before.replayed());
  EXPECT_EQ(after.now(Adopted{1}), "") << "the requested one is about to connect";
  EXPECT_EQ(after.now(ProcessEnded{WorkerId{2}, "killed"}), "");
  for (const int w : {1, 3}) after.back(10 + w, w, 1, true, WorkerProgress{Epoch{1}, 20, false});
  after.settled({11, 13}, 20);
  EXPECT_EQ(after.waits(r.start_grace - 1, {11, 13}), "");
  EXPECT_EQ(after.waits(2, {11, 13}), "respawn(1)") << "it had time to connect";
  Job later(r, before.replayed());
  EXPECT_EQ(later.now(Adopted{0, 1}), "") << "the launcher has no free slot for it yet, and will start it later";
  for (const int w : {1, 3}) later.back(10 + w, w, 1, true, WorkerProgress{Epoch{1}, 20, false});
  later.now(ProcessEnded{WorkerId{2}, "killed"});
  later.settled({11, 13}, 20);
  EXPECT_EQ(later.waits(r.start_grace + 5, {11, 13}), "");
}

TEST(Membership, AnEpochThatWasDecidedButNotAnnouncedIsAnnouncedAfterTheRestart) {
  Job before;
  before.start();
  before.now(LinkEnded{2});
  before.reports(1, 10, true);
  before.reports(3, 10, true);  // epoch 2 is on disk; then the coordinator dies, before it has sent anything
  Job after(rules(), before.replayed());
  EXPECT_EQ(after.back(11, 1, 1, true, WorkerProgress{Epoch{1}, 10, true}), "11=e2r0/2@11");
  EXPECT_EQ(after.back(12, 2, 1, true, WorkerProgress{Epoch{1}, 10, true}), "evict(12)") << "it is not in epoch 2";
}

TEST(Membership, ARestartedCoordinatorCountsNoTimeBeforeItsStart) {
  Job before;
  for (const int w : {1, 2, 3}) before.arrives(w);
  Membership after(rules(), before.replayed(), 5000);
  after.open(5000);
  const Decided d = after.handle(Arrive{11, Job::as(1), Epoch{1}, true, false, WorkerProgress{Epoch{1}, 4, false}}, 5000.1);
  EXPECT_EQ(brief(d), "") << "the others may still connect";
  EXPECT_EQ(said(d), "") << "no worker is late yet";
}

TEST(Membership, ACoordinatorWithTheWrongLogRefusesWorkersOfLaterEpochs) {
  Job job;
  EXPECT_EQ(job.back(1, 1, 5, false, WorkerProgress{Epoch{5}, 20, false}), "refuse(1)");
}

TEST(Membership, ASuspendedCoordinatorTakesNoWorkerForLost) {
  Job job;
  job.start();
  EXPECT_EQ(brief(job.membership().handle(Tick{}, 60)), "");
  EXPECT_EQ(brief(job.membership().handle(Tick{}, 61)), "");
  EXPECT_EQ(brief(job.membership().handle(Tick{}, 61.9)), "");
  EXPECT_EQ(brief(job.membership().handle(Tick{}, 62.8)), "seal(3,now)") << "but then heartbeats are due";
}

}  // namespace
}  // namespace cohort::elastic
