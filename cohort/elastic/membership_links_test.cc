// Members that are reachable, but not from each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/elastic/membership_testing.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

TEST(Membership, WorkersThatCannotReachEachOtherAreSeparatedAtTheThirdAttempt) {
  auto r = rules();
  r.target_workers = 4;
  Job job(r);
  for (const int w : {1, 2, 3, 4}) job.arrives(w);
  for (const std::uint32_t epoch : {1u, 2u}) {
    ASSERT_EQ(job.membership().coordinator_state().epoch, Epoch{epoch});
    job.now(PeerUnreachable{1, Epoch{epoch}, Rank{2}});
    job.now(PeerUnreachable{1, Epoch{epoch}, Rank{3}});
    job.now(PeerUnreachable{2, Epoch{epoch}, Rank{2}});
    job.now(PeerUnreachable{4, Epoch{epoch}, Rank{1}});
    for (const int g : {1, 2, 3}) job.now(Reported{g, Epoch{epoch}, WorkerProgress{Epoch{epoch}, 0, false}});
    const std::string then = job.now(Reported{4, Epoch{epoch}, WorkerProgress{Epoch{epoch}, 0, false}});
    EXPECT_EQ(then, epoch == 1 ? "1=e2r0/4@0 2=e2r1/4@0 3=e2r2/4@0 4=e2r3/4@0" : "1=e3r0/2@0 2=e3r1/2@0 evict(3) evict(4)");
  }
  job.settled({1, 2}, 0);
  EXPECT_EQ(job.arrives(5), "") << "not at once: it may be one of the excluded";
  EXPECT_EQ(job.waits(6, {1, 2, 5}), "seal(2)");
}

// A worker that no peer reaches is admitted again with growing delays, however long an epoch takes to settle.
TEST(Membership, AnExcludedWorkerWaitsFromWhenTheOthersHaveSettledAndTwiceAsLongTheNextTime) {
  auto r = rules();
  r.target_workers = 3;
  Job job(r);
  for (const int w : {1, 2, 3}) job.arrives(w);
  const auto breaks = [&](int unreachable) {
    const Epoch epoch = job.membership().coordinator_state().epoch;
    for (const int g : {1, 2, unreachable}) job.now(PeerUnreachable{g, epoch, g == unreachable ? Rank{0} : Rank{2}});
    std::string then;
    for (const int g : {1, 2, unreachable}) then = job.now(Reported{g, epoch, WorkerProgress{epoch, 0, false}});
    return then;
  };
  breaks(3);
  ASSERT_EQ(breaks(3), "1=e3r0/2@0 2=e3r1/2@0 evict(3)");
  job.arrives(4);
  EXPECT_EQ(job.waits(6, {1, 2, 4}), "") << "longer than the delay";
  EXPECT_EQ(job.settled({1, 2}, 0), "");
  EXPECT_EQ(job.waits(4.5, {1, 2, 4}), "");
  EXPECT_EQ(job.waits(1, {1, 2, 4}), "seal(2)");
  for (const int g : {1, 2}) job.reports(g, 0);
  breaks(4);
  ASSERT_THAT(breaks(4), HasSubstr("evict(4)"));
  job.arrives(5);
  job.waits(6, {1, 2, 5});
  job.settled({1, 2}, 0);
  EXPECT_EQ(job.waits(9.5, {1, 2, 5}), "");
  EXPECT_EQ(job.waits(1, {1, 2, 5}), "seal(2)");
}

TEST(Membership, AWorkerThatSentHeartbeatsAndNoReportIsDelayedLikeAnExcludedOne) {
  Job job;
  job.start();
  const auto sticks = [&](int stuck) {
    job.now(PeerUnreachable{1, job.membership().coordinator_state().epoch, Rank{2}});
    for (const int g : {1, 2}) job.reports(g, 10);
    return job.waits(10.5, {1, 2, stuck});
  };
  EXPECT_EQ(sticks(3), "1=e2r0/2@10 2=e2r1/2@10 evict(3)");
  EXPECT_EQ(job.settled({1, 2}, 10), "");
  EXPECT_EQ(job.arrives(4), "") << "it may be the same process";
  EXPECT_EQ(job.waits(4.5, {1, 2, 4}), "");
  EXPECT_EQ(job.waits(1, {1, 2, 4}), "seal(2)");
  for (const int g : {1, 2}) job.reports(g, 10);
  EXPECT_EQ(sticks(4), "1=e4r0/2@10 2=e4r1/2@10 evict(4)");
  job.settled({1, 2}, 10);
  job.arrives(5);
  EXPECT_EQ(job.waits(9.5, {1, 2, 5}), "") << "twice as long";
  EXPECT_EQ(job.waits(1, {1, 2, 5}), "seal(2)");
}

}  // namespace
}  // namespace cohort::elastic
