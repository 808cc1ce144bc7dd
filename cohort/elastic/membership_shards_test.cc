// State of which each worker holds a shard: what survives a loss, and how leavers transfer theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/elastic/membership_testing.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

TEST(Membership, ShardsNeedAllOrTheirBuddies) {
  for (const HeldState holding : {HeldState::shard, HeldState::shard_and_buddy}) {
    auto r = rules();
    r.held_state = holding;
    Job job(r);
    job.start();
    job.now(LinkEnded{2});
    job.now(ProcessEnded{WorkerId{2}, "killed"});
    job.reports(1, 5);
    const bool buddy = holding == HeldState::shard_and_buddy;
    EXPECT_EQ(job.reports(3, 5), buddy ? "1=e2r0/2@5 3=e2r1/2@5" : "1=e2r0/2@disk 3=e2r1/2@disk<0");
    EXPECT_EQ(job.messages().find("from the newest checkpoint") == std::string::npos, buddy);
  }
}

// Three workers with a shard of the state each, at step 5; these leave and have reported the rank that they sent their shard to.
std::string after_leaving(Job& job, const std::map<int, std::optional<Rank>>& leavers) {
  job.start();
  std::string last;
  for (const auto& [w, to] : leavers) job.now(Leaving{w, "SIGTERM"});
  for (const auto& [w, to] : leavers)
    if (to) job.now(StateTransferred{w, Epoch{1}, *to});
  for (const int w : {1, 2, 3}) last = job.reports(w, 5);
  return last;
}

ElasticRules sharded() {
  auto r = rules();
  r.held_state = HeldState::shard;
  return r;
}

TEST(Membership, ALeaverMayGoOnceARemainingRankHasItsShard) {
  Job job(sharded());
  EXPECT_EQ(after_leaving(job, {{2, Rank{2}}}), "1=e2r0/2@5 3=e2r1/2@5 release(2)");
  auto alone = sharded();
  alone.min_workers = 1;
  Job again(alone);
  after_leaving(again, {{2, Rank{2}}});
  again.settled({1, 3}, 5);
  again.now(LinkEnded{3});
  again.now(ProcessEnded{WorkerId{3}, "killed"});
  EXPECT_EQ(again.reports(1, 6), "1=e3r0/1@disk") << "a transfer counts in its epoch only";
}

TEST(Membership, ARestartedCoordinatorKnowsTransferredShards) {
  Job before(sharded());
  before.start();
  before.now(Leaving{2, "SIGTERM"});
  before.now(StateTransferred{2, Epoch{1}, Rank{2}});
  EXPECT_EQ(before.last().entries, std::vector<Entry>{(ShardTransferred{WorkerId{2}, Rank{2}})}) << "on disk before a worker may go";
  before.now(StateTransferred{2, Epoch{1}, Rank{2}});
  EXPECT_TRUE(before.last().entries.empty()) << "it is sent again on every new connection";
  Job after(sharded(), before.replayed());
  after.now(ProcessEnded{WorkerId{2}, "its process has ended"});
  after.back(11, 1, 1, true, WorkerProgress{Epoch{1}, 5, false});
  EXPECT_EQ(after.back(13, 3, 1, true, WorkerProgress{Epoch{1}, 5, false}), "11=e2r0/2@5 13=e2r1/2@5");
}

TEST(Membership, ALeaverStaysForOneMoreEpochUntilARemainingRankHasItsShard) {
  Job job(sharded());
  EXPECT_EQ(after_leaving(job, {{2, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  Job late(sharded());
  EXPECT_EQ(after_leaving(late, {{2, Rank{2}}, {3, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
}

TEST(Membership, WhenAllLeaveTheyFormOneMoreEpochToSaveTheirShards) {
  Job job(sharded());
  EXPECT_EQ(after_leaving(job, {{1, std::nullopt}, {2, std::nullopt}, {3, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  job.settled({1, 2, 3}, 5);
  for (const int w : {1, 2, 3}) job.now(StateTransferred{w, Epoch{2}, kNoRank});
  job.reports(1, 6);
  job.reports(2, 6);
  EXPECT_EQ(job.reports(3, 6), "release(1) release(2) release(3)");
}

TEST(Membership, ATransferredShardIsLostWithItsReceiverWhoseBuddyHasOnlyTheReceiversOwn) {
  auto r = sharded();
  r.held_state = HeldState::shard_and_buddy;
  Job job(r);
  job.start();
  job.now(Leaving{2, "SIGTERM"});
  job.now(StateTransferred{2, Epoch{1}, Rank{2}});
  job.now(LinkEnded{3});
  job.now(ProcessEnded{WorkerId{3}, "killed"});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "1=e2r0/2@5 2=e2r1/2@5") << "it stays until another rank has its shard";
}

TEST(Membership, AnIncompleteStateIsNotSavedWhenAllLeaveAndOneIsLost) {
  Job job(sharded());
  job.start();
  for (const int w : {1, 2, 3}) job.now(Leaving{w, "SIGTERM"});
  job.now(LinkEnded{3});
  job.now(ProcessEnded{WorkerId{3}, "killed"});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "release(1) release(2)");
}

TEST(Membership, AShardCannotBeTransferredToARankThatIsNoMember) {
  Job job(sharded());
  EXPECT_EQ(after_leaving(job, {{2, Rank{7}}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  Job odd(sharded());
  EXPECT_EQ(after_leaving(odd, {{2, Rank{-3}}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
}

TEST(Membership, UntilShardsAreLaidOutAgainThoseOfTheEpochBeforeCount) {
  auto r = rules();
  r.min_workers = 1;
  r.held_state = HeldState::shard_and_buddy;
  for (const bool laid_out : {false, true}) {
    Job job(r);
    job.start();
    job.now(LinkEnded{2});
    job.now(ProcessEnded{WorkerId{2}, "killed"});
    job.reports(1, 5);
    ASSERT_EQ(job.reports(3, 5), "1=e2r0/2@5 3=e2r1/2@5");
    job.now(LinkEnded{1});
    job.now(ProcessEnded{WorkerId{1}, "killed"});
    const Epoch stands{laid_out ? 2u : 1u};
    EXPECT_EQ(job.now(Reported{3, Epoch{2}, WorkerProgress{stands, 5, false}}), laid_out ? "3=e3r0/1@5" : "3=e3r0/1@disk");
  }
}

TEST(Membership, ANewcomerThatIsLostBeforeAnyMemberHasSettledCostsNoShards) {
  for (const bool begun : {false, true}) {
    auto r = rules();
    r.max_workers = 4;
    r.held_state = HeldState::shard;
    Job job(r);
    job.start();
    job.arrives(4);
    for (const int g : {1, 2, 3}) job.reports(g, 10);
    ASSERT_EQ(job.membership().coordinator_state().epoch, Epoch{2});
    if (begun) job.settled({1}, 10);  // it has freed the old shards
    job.now(LinkEnded{4});
    job.now(ProcessEnded{WorkerId{4}, "killed"});
    std::string then;
    for (const int g : {1, 2, 3}) then = job.reports(g, 10);
    EXPECT_THAT(then, HasSubstr(begun ? "1=e3r0/3@disk" : "1=e3r0/3@10"));
  }
}

}  // namespace
}  // namespace cohort::elastic
