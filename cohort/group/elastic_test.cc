// Stories of an elastic job, told event by event. Schedules that nobody would think of are the simulator's: tests/membership.
#include "cohort/group/elastic.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cohort/base/failure_of.h"
#include "cohort/base/text.h"

namespace cohort::group {
namespace {

using testing::HasSubstr;

ElasticRules rules() {
  ElasticRules r;
  r.job = "j";
  r.least = 2;
  r.wanted = 3;
  r.most = 4;
  return r;
}

// One word per action, without what is only said.
std::string brief(const Decided& d) {
  std::vector<std::string> words;
  for (const ElasticAction& action : d.actions) {
    if (const auto* a = std::get_if<Seal>(&action)) words.push_back(fmt::format("seal({}{})", a->guests.size(), a->urgent ? ",now" : ""));
    if (const auto* a = std::get_if<Begin>(&action)) {
      const std::string base = a->base ? std::to_string(*a->base) : "disk";
      const std::string heal = a->heal_from ? fmt::format("<{}", a->heal_from.value) : "";
      words.push_back(fmt::format("{}=e{}r{}/{}@{}{}", a->guest, a->roster.epoch.value, a->rank.value, a->roster.size(), base, heal));
    }
    if (const auto* a = std::get_if<Release>(&action))
      words.push_back(fmt::format("release({}{}{})", a->guest, a->save ? ",save" : "", a->finish ? ",finish" : ""));
    if (const auto* a = std::get_if<Evict>(&action)) words.push_back(fmt::format("evict({})", a->guest));
    if (const auto* a = std::get_if<Refuse>(&action)) words.push_back(fmt::format("refuse({})", a->guest));
    if (const auto* a = std::get_if<Respawn>(&action)) words.push_back(fmt::format("respawn({})", a->count));
    if (const auto* a = std::get_if<Stop>(&action)) words.push_back(a->error ? fmt::format("stop({})", kind_name(a->error->kind)) : "stop");
  }
  return join(words, " ");
}

std::string said(const Decided& d) {
  std::string text;
  for (const ElasticAction& action : d.actions)
    if (const auto* a = std::get_if<Say>(&action)) text += a->text + "\n";
  return text;
}

// A job under the hand of a test: guest g is worker g unless said.
class Job {
 public:
  explicit Job(ElasticRules r = rules(), Charter charter = {}) : rules_(std::move(r)), elastic_(rules_, std::move(charter), 0) {
    keep(elastic_.open(0));
  }

  std::string now(const ElasticEvent& event) {
    last_ = keep(elastic_.handle(event, time_));
    return brief(last_);
  }
  std::string arrives(int worker) { return now(Arrive{worker, as(worker), {}, false, false, {}}); }
  std::string back(int guest, int worker, std::uint32_t epoch, bool sealed, std::optional<Standing> standing) {
    return now(Arrive{guest, as(worker), Epoch{epoch}, sealed, !sealed, standing});
  }
  std::string reports(int guest, std::int64_t applied, bool prepared = false) {
    const Epoch e = elastic_.charter().epoch;
    return now(Reported{guest, e, Standing{e, applied, prepared}});
  }
  std::string settled(std::vector<int> guests, std::int64_t step) {
    std::string all;
    for (const int g : guests) all += now(Settled{g, elastic_.charter().epoch, step});
    return all;
  }
  // Time goes by in small pieces, and these guests keep sending heartbeats. What happened, in one line.
  std::string waits(double span, const std::vector<int>& heard) {
    std::vector<std::string> all;
    for (const double until = time_ + span; time_ < until;) {
      time_ = std::min(until, time_ + 0.25);
      for (const int g : heard) all.push_back(now(Heard{g}));
      all.push_back(now(Tick{}));
    }
    std::erase(all, "");
    return join(all, " ");
  }
  // Three workers in epoch 1, all at step 10.
  void start() {
    for (const int w : {1, 2, 3}) arrives(w);
    settled({1, 2, 3}, 0);
    ASSERT_TRUE(elastic_.settled());
  }
  Elastic& elastic() { return elastic_; }
  const Decided& last() const { return last_; }
  const std::string& words() const { return words_; }
  Charter replayed() const { return replay(log_); }
  static Worker as(int worker) {
    return {WorkerId{static_cast<std::uint64_t>(worker)}, {Rank{0}, fmt::format("127.0.0.1:{}", worker), 1000 + worker, "here"}};
  }

 private:
  Decided keep(Decided d) {
    log_.insert(log_.end(), d.entries.begin(), d.entries.end());
    words_ += said(d);
    return d;
  }
  ElasticRules rules_;
  Elastic elastic_;
  double time_ = 0;
  Decided last_;
  std::string words_;
  std::vector<Entry> log_;
};

TEST(Elastic, StartsWhenAllThatAreWantedHaveCome) {
  Job job;
  EXPECT_EQ(job.arrives(1), "");
  EXPECT_EQ(job.arrives(2), "");
  EXPECT_EQ(job.arrives(3), "1=e1r0/3@disk 2=e1r1/3@disk<0 3=e1r2/3@disk<0");
  EXPECT_EQ(job.last().entries.size(), 1u) << "on disk before anybody hears of it";
}

TEST(Elastic, StartsWithFewerWhenTheGraceIsOver) {
  Job job;
  job.arrives(1);
  job.arrives(2);
  EXPECT_EQ(job.waits(29.5, {1, 2}), "");
  EXPECT_THAT(job.words(), HasSubstr("2 of 3 workers have come; after 30 s 2 are enough"));
  EXPECT_EQ(job.waits(1, {1, 2}), "1=e1r0/2@disk 2=e1r1/2@disk<0");
}

TEST(Elastic, AMemberThatCondemnsTheJobEndsItForAll) {
  Job job;
  job.start();
  const Error why{Kind::corrupt, "rank 2 holds other values", kNoRank};
  EXPECT_EQ(job.now(Condemned{2, why}), "stop(corrupt)");
  EXPECT_THAT(job.words(), HasSubstr("job 'j' gives up: rank 2 holds other values"));
  EXPECT_EQ(job.now(Condemned{1, why}), "") << "all of them find it, one is enough";
  EXPECT_EQ(job.now(LinkEnded{1}), "");
  Job other;
  other.start();
  other.arrives(4);
  EXPECT_EQ(other.now(Condemned{4, why}), "") << "only a member can know";
}

TEST(Elastic, ALostWorkersSurvivorsGoOnFromWhatAllOfThemHold) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(LinkEnded{2}), "seal(2,now)");
  EXPECT_EQ(job.reports(1, 10, true), "");
  EXPECT_EQ(job.reports(3, 11), "1=e2r0/2@11 3=e2r1/2@11") << "rank 2 applied step 11, so rank 0 can and must";
  EXPECT_THAT(job.words(), HasSubstr("rank 1 (process 1002 on here) is lost: its connection ended"));
}

TEST(Elastic, AStepThatOneSurvivorWasNotPreparedForIsDoneAgain) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10, true);
  EXPECT_EQ(job.reports(3, 10, false), "1=e2r0/2@10 3=e2r1/2@10");
}

TEST(Elastic, AStepThatAllSurvivorsWerePreparedForIsKept) {  // the lost one may have applied it
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10, true);
  EXPECT_EQ(job.reports(3, 10, true), "1=e2r0/2@11 3=e2r1/2@11");
}

TEST(Elastic, WorkersThatBrokeTheProtocolStopTheJob) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 10);
  EXPECT_EQ(job.reports(3, 11), "stop(bug)");
  EXPECT_THAT(job.words(), HasSubstr("rank 2 (process 1003 on here) has applied step 11"));
}

TEST(Elastic, SilenceForThreeHeartbeatsIsALoss) {
  Job job;
  job.start();
  EXPECT_EQ(job.waits(1.9, {1, 3}), "");
  EXPECT_EQ(job.waits(0.2, {1, 3}), "seal(3,now)");
  job.reports(1, 4);
  EXPECT_EQ(job.reports(3, 4), "1=e2r0/2@4 3=e2r1/2@4 evict(2)") << "told now, not before the next epoch is sure";
}

TEST(Elastic, ARevivedWorkerThatReportsInTimeIsKept) {
  Job job;
  job.start();
  job.waits(2.1, {1, 3});
  job.reports(1, 4);
  job.now(Heard{2});
  EXPECT_EQ(job.reports(3, 4), "") << "it is heard again and may have state";
  EXPECT_EQ(job.reports(2, 4), "1=e2r0/3@4 2=e2r1/3@4 3=e2r2/3@4");
}

TEST(Elastic, AWorkerWhoseHeartBeatsButThatNeverReportsIsEvicted) {
  Job job;
  job.start();
  job.now(LinkEnded{2});
  job.reports(1, 4);
  EXPECT_EQ(job.waits(9.5, {1, 3}), "");
  EXPECT_EQ(job.waits(1, {1, 3}), "");
  EXPECT_THAT(job.words(), HasSubstr("rank 2 (process 1003 on here) is lost: it did not say where it stands within 10 s"));
  EXPECT_EQ(job.elastic().charter().epoch, Epoch{1}) << "one of at least two is there";
  EXPECT_EQ(job.arrives(5), "1=e2r0/2@4 5=e2r1/2@4<0 evict(3)");
}

TEST(Elastic, ANewcomerComesInAtTheEndOfAStepAndHealsFromAPeer) {
  Job job;
  job.start();
  EXPECT_EQ(job.arrives(4), "seal(3)") << "not urgent: nothing is lost";
  job.reports(1, 7);
  job.reports(2, 7);
  EXPECT_EQ(job.reports(3, 7), "1=e2r0/4@7 2=e2r1/4@7 3=e2r2/4@7 4=e2r3/4@7<0");
  EXPECT_EQ(job.arrives(5), "") << "the job is full";
  EXPECT_THAT(job.words(), HasSubstr("process 1005 on here waits: the job has its 4 workers"));
}

TEST(Elastic, AnEpochThatStillSettlesIsNotDisturbedByNewcomers) {
  Job job;
  for (const int w : {1, 2, 3}) job.arrives(w);
  job.settled({1, 2}, 0);
  EXPECT_EQ(job.arrives(4), "");
  EXPECT_EQ(job.settled({3}, 0), "seal(3)");
}

TEST(Elastic, ALeaverIsLetGoAfterItsStep) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(Leaving{1, "SIGTERM"}), "seal(3)");
  job.reports(1, 7);
  job.reports(2, 7);
  EXPECT_EQ(job.reports(3, 7), "2=e2r0/2@7 3=e2r1/2@7 release(1)");
}

TEST(Elastic, TheOnlyHolderHandsOverBeforeItLeaves) {
  auto r = rules();
  r.least = 1;
  r.wanted = 1;
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
  r.least = r.wanted = 1;
  return r;
}

// The only one that has the state is let go and is to save it; another has come meanwhile.
void last_one_saves(Job& job) {
  job.arrives(1);
  job.settled({1}, 0);
  job.now(Leaving{1, "SIGTERM"});
  EXPECT_EQ(job.reports(1, 7), "release(1,save)");
  EXPECT_EQ(job.arrives(2), "") << "it may still be writing";
}

TEST(Elastic, TheLastOneToLeaveSavesTheState) {
  Job says_so(one_is_enough());
  last_one_saves(says_so);
  EXPECT_EQ(says_so.now(Entrusted{1, Epoch{1}, kNoRank}), "2=e2r0/1@disk release(1)") << "whoever comes reads it";
  Job ends(one_is_enough());
  last_one_saves(ends);
  ends.now(LinkEnded{1});
  EXPECT_EQ(ends.now(ProcessEnded{WorkerId{1}, "exit status 0"}), "2=e2r0/1@disk");
}

TEST(Elastic, AConnectionThatEndsIsNoWordThatTheStateWasSaved) {  // it may never have heard that it was to
  Job job(one_is_enough());
  last_one_saves(job);
  EXPECT_EQ(job.now(LinkEnded{1}), "");
  EXPECT_EQ(job.back(11, 1, 1, true, Standing{Epoch{1}, 7, false}), "11=e2r0/2@7 2=e2r1/2@7<0") << "it hands over";
  Job never(one_is_enough());
  last_one_saves(never);
  EXPECT_EQ(never.now(LinkEnded{1}), "");
  EXPECT_EQ(never.waits(29, {2}), "");
  EXPECT_EQ(never.waits(2, {2}), "2=e2r0/1@disk");
}

TEST(Elastic, ASaveIsWaitedForAsLongAsTheHeartOfItsWriterBeats) {
  Job job(one_is_enough());
  last_one_saves(job);
  EXPECT_EQ(job.waits(100, {1, 2}), "");
  EXPECT_THAT(job.words(), HasSubstr("the state of epoch 1 is being saved"));
  EXPECT_EQ(job.waits(20, {2}), "") << "it may come to itself, or find its way back";
  EXPECT_EQ(job.waits(13, {2}), "2=e2r0/1@disk release(1)");
}

// Two of which one leaves, prepared for step 8, while the other one cannot be heard: it may have applied that step, or never have come to
// it.
TEST(Elastic, AStepIsEndedAloneAndSavedOnlyWhenNobodyCanComeBackWhoCouldNotEndItToo) {
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
  EXPECT_EQ(ended.now(Entrusted{1, Epoch{1}, kNoRank}), "3=e2r0/2@disk 4=e2r1/2@disk<0 release(1)");
  Job unheard;
  EXPECT_EQ(leaves_prepared(unheard, false), "release(1,save)") << "step 8 does not count by this";
  for (const int w : {3, 4}) EXPECT_EQ(unheard.arrives(w), "");
  EXPECT_EQ(unheard.now(Entrusted{1, Epoch{1}, kNoRank}), "") << "there may be a later state than that";
  EXPECT_EQ(unheard.back(12, 2, 1, true, Standing{Epoch{1}, 8, false}), "12=e2r0/3@8 3=e2r1/3@8<0 4=e2r2/3@8<0 release(1)");
}

TEST(Elastic, ARestartedCoordinatorKnowsThatTheStateIsOnDisk) {
  Job before(one_is_enough());
  before.arrives(1);
  before.settled({1}, 0);
  before.now(Leaving{1, "SIGTERM"});
  before.reports(1, 7);
  before.now(Entrusted{1, Epoch{1}, kNoRank});
  Job after(one_is_enough(), before.replayed());
  after.arrives(2);
  EXPECT_EQ(after.now(ProcessEnded{WorkerId{1}, "its process has ended"}), "2=e2r0/1@disk");
}

TEST(Elastic, WaitsBelowTheLeastNumberAndThenGivesUp) {
  auto r = rules();
  r.wait_limit = 60;
  Job job(r);
  job.start();
  job.now(LinkEnded{2});
  job.now(LinkEnded{3});
  EXPECT_EQ(job.reports(1, 5), "");
  EXPECT_THAT(job.words(), HasSubstr("waiting (0 s of 60 s): 1 of at least 2 workers"));
  EXPECT_EQ(job.waits(30, {1}), "");
  EXPECT_EQ(job.arrives(4), "1=e2r0/2@5 4=e2r1/2@5<0") << "a joiner ends the wait";
  job.settled({1, 4}, 5);
  job.now(LinkEnded{4});
  job.reports(1, 9);
  EXPECT_EQ(job.waits(59.5, {1}), "") << "the wait is counted anew";
  EXPECT_EQ(job.waits(1, {1}), "stop(timeout)");
}

TEST(Elastic, LostWorkersAreReplacedAsOftenAsAllowed) {
  auto r = rules();
  r.respawns = 2;
  Job job(r);
  job.start();
  EXPECT_EQ(job.now(LinkEnded{2}), "seal(2,now) respawn(1)");
  EXPECT_EQ(job.now(SpawnFailed{"no room"}), "respawn(1)");
  EXPECT_EQ(job.now(SpawnFailed{"no room"}), "") << "twice is enough";
  EXPECT_EQ(job.replayed().respawned, 2u);
}

TEST(Elastic, WhereNoMemberCanBeHeardNothingIsFormed) {  // they may be training behind a partition
  auto r = rules();
  r.wait_limit = 60;
  Job job(r);
  job.start();
  for (const int g : {1, 2, 3}) job.now(LinkEnded{g});
  job.arrives(4);
  EXPECT_EQ(job.arrives(5), "");
  EXPECT_THAT(job.words(), HasSubstr("not all are known to have ended: they may still be training"));
  for (const int w : {1, 2}) EXPECT_EQ(job.now(ProcessEnded{WorkerId{static_cast<std::uint64_t>(w)}, "killed"}), "");
  EXPECT_EQ(job.now(ProcessEnded{WorkerId{3}, "killed"}), "4=e2r0/2@disk 5=e2r1/2@disk<0") << "now it is known";
}

TEST(Elastic, AHolderThatFellSilentIsWaitedForBeforeTheDiskIsRead) {
  Job job;
  job.start();
  for (const int g : {2, 3}) job.now(LinkEnded{g});
  for (const std::uint64_t w : {2, 3}) job.now(ProcessEnded{WorkerId{w}, "killed"});
  job.reports(1, 9);
  job.waits(2.5, {});  // the last one who has the state, sealed, is paused
  job.arrives(4);
  EXPECT_EQ(job.arrives(5), "");
  EXPECT_EQ(job.waits(20, {4, 5}), "") << "it may come back";
  EXPECT_EQ(job.now(Heard{1}), "1=e2r0/3@9 4=e2r1/3@9<0 5=e2r2/3@9<0");
}

TEST(Elastic, WithTheMajorityRuleHalfIsNotEnough) {
  auto r = rules();
  r.wanted = 4;
  r.quorum = Quorum::majority;
  Job job(r);
  for (const int w : {1, 2, 3, 4}) job.arrives(w);
  job.settled({1, 2, 3, 4}, 0);
  job.now(LinkEnded{3});
  job.now(LinkEnded{4});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "");
  EXPECT_THAT(job.words(), HasSubstr("2 of the 4 workers of epoch 1 can be heard, which is no majority"));
  EXPECT_EQ(job.now(ProcessEnded{WorkerId{4}, "killed"}), "1=e2r0/2@5 2=e2r1/2@5") << "2 of 3 that may be alive";
}

TEST(Elastic, WithTheMajorityRuleThoseWhoLeaveCountUntilTheyHaveLeft) {
  auto r = rules();
  r.quorum = Quorum::majority;
  Job job(r);
  job.start();
  for (const int w : {1, 2}) job.now(Leaving{w, "SIGTERM"});
  job.now(LinkEnded{3});  // nobody saw it end
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "release(1,save) release(2)") << "there is nobody to hand over to";
  Job handed(r);
  handed.start();
  handed.arrives(4);
  for (const int w : {1, 2}) handed.now(Leaving{w, "SIGTERM"});
  handed.now(LinkEnded{3});
  handed.reports(1, 5);
  EXPECT_EQ(handed.reports(2, 5), "1=e2r0/3@5 2=e2r1/3@5 4=e2r2/3@5<0") << "2 of 3 can be heard, and hand over";
}

TEST(Elastic, ShardsNeedAllOrTheirBuddies) {
  for (const Holding holding : {Holding::shard, Holding::shard_and_buddy}) {
    auto r = rules();
    r.holding = holding;
    Job job(r);
    job.start();
    job.now(LinkEnded{2});
    job.now(ProcessEnded{WorkerId{2}, "killed"});
    job.reports(1, 5);
    const bool buddy = holding == Holding::shard_and_buddy;
    EXPECT_EQ(job.reports(3, 5), buddy ? "1=e2r0/2@5 3=e2r1/2@5" : "1=e2r0/2@disk 3=e2r1/2@disk<0");
    EXPECT_EQ(job.words().find("from the newest checkpoint") == std::string::npos, buddy);
  }
}

// Three workers with a part of the state each, at step 5, of whom these want to leave and have said whom they gave their part to.
std::string planned(Job& job, const std::map<int, std::optional<Rank>>& leavers) {
  job.start();
  std::string last;
  for (const auto& [w, to] : leavers) job.now(Leaving{w, "SIGTERM"});
  for (const auto& [w, to] : leavers)
    if (to) job.now(Entrusted{w, Epoch{1}, *to});
  for (const int w : {1, 2, 3}) last = job.reports(w, 5);
  return last;
}

ElasticRules sharded() {
  auto r = rules();
  r.holding = Holding::shard;
  return r;
}

TEST(Elastic, WhoGaveItsShardToOneThatStaysMayGo) {
  Job job(sharded());
  EXPECT_EQ(planned(job, {{2, Rank{2}}}), "1=e2r0/2@5 3=e2r1/2@5 release(2)");
  auto alone = sharded();
  alone.least = 1;
  Job again(alone);
  planned(again, {{2, Rank{2}}});
  again.settled({1, 3}, 5);
  again.now(LinkEnded{3});
  again.now(ProcessEnded{WorkerId{3}, "killed"});
  EXPECT_EQ(again.reports(1, 6), "1=e3r0/1@disk") << "what was entrusted in an epoch counts in that epoch";
}

TEST(Elastic, ARestartedCoordinatorKnowsWhoseShardWasHandedOver) {
  Job before(sharded());
  before.start();
  before.now(Leaving{2, "SIGTERM"});
  before.now(Entrusted{2, Epoch{1}, Rank{2}});
  EXPECT_EQ(before.last().entries, std::vector<Entry>{(Handed{WorkerId{2}, Rank{2}})}) << "on disk before anybody may go";
  before.now(Entrusted{2, Epoch{1}, Rank{2}});
  EXPECT_TRUE(before.last().entries.empty()) << "it is said again on every new connection";
  Job after(sharded(), before.replayed());
  after.now(ProcessEnded{WorkerId{2}, "its process has ended"});
  after.back(11, 1, 1, true, Standing{Epoch{1}, 5, false});
  EXPECT_EQ(after.back(13, 3, 1, true, Standing{Epoch{1}, 5, false}), "11=e2r0/2@5 13=e2r1/2@5");
}

TEST(Elastic, WhoDidNotHandItsShardOverOrToOneThatLeavesTooStaysForOneMoreEpoch) {
  Job job(sharded());
  EXPECT_EQ(planned(job, {{2, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  Job late(sharded());
  EXPECT_EQ(planned(late, {{2, Rank{2}}, {3, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
}

TEST(Elastic, WhenAllLeaveTheyMeetUntilTheirShardsAreOnDisk) {
  Job job(sharded());
  EXPECT_EQ(planned(job, {{1, std::nullopt}, {2, std::nullopt}, {3, std::nullopt}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  job.settled({1, 2, 3}, 5);
  for (const int w : {1, 2, 3}) job.now(Entrusted{w, Epoch{2}, kNoRank});
  job.reports(1, 6);
  job.reports(2, 6);
  EXPECT_EQ(job.reports(3, 6), "release(1) release(2) release(3)");
}

TEST(Elastic, WhatWasHandedOverIsGoneWithItsHeirWhoseBuddyHasOnlyTheHeirsOwn) {
  auto r = sharded();
  r.holding = Holding::shard_and_buddy;
  Job job(r);
  job.start();
  job.now(Leaving{2, "SIGTERM"});
  job.now(Entrusted{2, Epoch{1}, Rank{2}});
  job.now(LinkEnded{3});
  job.now(ProcessEnded{WorkerId{3}, "killed"});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "1=e2r0/2@5 2=e2r1/2@5") << "it stays until it has found another heir";
}

TEST(Elastic, PartsOfAStateAreNotSavedWhenAllLeaveAndOneIsLost) {
  Job job(sharded());
  job.start();
  for (const int w : {1, 2, 3}) job.now(Leaving{w, "SIGTERM"});
  job.now(LinkEnded{3});
  job.now(ProcessEnded{WorkerId{3}, "killed"});
  job.reports(1, 5);
  EXPECT_EQ(job.reports(2, 5), "release(1) release(2)");
}

TEST(Elastic, AnHeirThatIsNoMemberIsNone) {
  Job job(sharded());
  EXPECT_EQ(planned(job, {{2, Rank{7}}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
  Job odd(sharded());
  EXPECT_EQ(planned(odd, {{2, Rank{-3}}}), "1=e2r0/3@5 2=e2r1/3@5 3=e2r2/3@5");
}

TEST(Elastic, ShardsThatAreNotYetLaidOutAnewAreThoseOfTheEpochBefore) {
  auto r = rules();
  r.least = 1;
  r.holding = Holding::shard_and_buddy;
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
    EXPECT_EQ(job.now(Reported{3, Epoch{2}, Standing{stands, 5, false}}), laid_out ? "3=e3r0/1@5" : "3=e3r0/1@disk");
  }
}

TEST(Elastic, ANewcomerThatIsLostBeforeAnybodyHasSettledCostsNoShards) {
  for (const bool begun : {false, true}) {
    auto r = rules();
    r.most = 4;
    r.holding = Holding::shard;
    Job job(r);
    job.start();
    job.arrives(4);
    for (const int g : {1, 2, 3}) job.reports(g, 10);
    ASSERT_EQ(job.elastic().charter().epoch, Epoch{2});
    if (begun) job.settled({1}, 10);  // it has thrown the old pieces away
    job.now(LinkEnded{4});
    job.now(ProcessEnded{WorkerId{4}, "killed"});
    std::string then;
    for (const int g : {1, 2, 3}) then = job.reports(g, 10);
    EXPECT_THAT(then, HasSubstr(begun ? "1=e3r0/3@disk" : "1=e3r0/3@10"));
  }
}

TEST(Elastic, WorkersThatCannotReachEachOtherArePartedAtTheThirdAttempt) {
  auto r = rules();
  r.wanted = 4;
  Job job(r);
  for (const int w : {1, 2, 3, 4}) job.arrives(w);
  for (const std::uint32_t epoch : {1u, 2u}) {
    ASSERT_EQ(job.elastic().charter().epoch, Epoch{epoch});
    job.now(Complained{1, Epoch{epoch}, Rank{2}});
    job.now(Complained{1, Epoch{epoch}, Rank{3}});
    job.now(Complained{2, Epoch{epoch}, Rank{2}});
    job.now(Complained{4, Epoch{epoch}, Rank{1}});
    for (const int g : {1, 2, 3}) job.now(Reported{g, Epoch{epoch}, Standing{Epoch{epoch}, 0, false}});
    const std::string then = job.now(Reported{4, Epoch{epoch}, Standing{Epoch{epoch}, 0, false}});
    EXPECT_EQ(then, epoch == 1 ? "1=e2r0/4@0 2=e2r1/4@0 3=e2r2/4@0 4=e2r3/4@0" : "1=e3r0/2@0 2=e3r1/2@0 evict(3) evict(4)");
  }
  job.settled({1, 2}, 0);
  EXPECT_EQ(job.arrives(5), "") << "not at once: it may be one of those";
  EXPECT_EQ(job.waits(6, {1, 2, 5}), "seal(2)");
}

// A worker that nobody reaches is let in again ever more rarely, however long an epoch takes to settle.
TEST(Elastic, WhoeverWasLeftOutWaitsFromTheMomentTheOthersHaveSettledAndTwiceAsLongTheNextTime) {
  auto r = rules();
  r.wanted = 3;
  Job job(r);
  for (const int w : {1, 2, 3}) job.arrives(w);
  const auto breaks = [&](int stranger) {
    const Epoch epoch = job.elastic().charter().epoch;
    for (const int g : {1, 2, stranger}) job.now(Complained{g, epoch, g == stranger ? Rank{0} : Rank{2}});
    std::string then;
    for (const int g : {1, 2, stranger}) then = job.now(Reported{g, epoch, Standing{epoch, 0, false}});
    return then;
  };
  breaks(3);
  ASSERT_EQ(breaks(3), "1=e3r0/2@0 2=e3r1/2@0 evict(3)");
  job.arrives(4);
  EXPECT_EQ(job.waits(6, {1, 2, 4}), "") << "longer than it is kept out";
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

TEST(Elastic, WhoeverDidNotReportThoughItsHeartBeatIsHeldBackLikeOneThatWasCutOff) {
  Job job;
  job.start();
  const auto sticks = [&](int stuck) {
    job.now(Complained{1, job.elastic().charter().epoch, Rank{2}});
    for (const int g : {1, 2}) job.reports(g, 10);
    return job.waits(10.5, {1, 2, stuck});
  };
  EXPECT_EQ(sticks(3), "1=e2r0/2@10 2=e2r1/2@10 evict(3)");
  EXPECT_EQ(job.settled({1, 2}, 10), "");
  EXPECT_EQ(job.arrives(4), "") << "it may be the same one";
  EXPECT_EQ(job.waits(4.5, {1, 2, 4}), "");
  EXPECT_EQ(job.waits(1, {1, 2, 4}), "seal(2)");
  for (const int g : {1, 2}) job.reports(g, 10);
  EXPECT_EQ(sticks(4), "1=e4r0/2@10 2=e4r1/2@10 evict(4)");
  job.settled({1, 2}, 10);
  job.arrives(5);
  EXPECT_EQ(job.waits(9.5, {1, 2, 5}), "") << "twice as long";
  EXPECT_EQ(job.waits(1, {1, 2, 5}), "seal(2)");
}

TEST(Elastic, ARestartedCoordinatorGoesOnWithTheEpochWhenAllComeBack) {
  Job before;
  before.start();
  Job after(rules(), before.replayed());
  EXPECT_EQ(after.replayed().term, 2u);
  for (const int w : {1, 2}) EXPECT_EQ(after.back(10 + w, w, 1, false, Standing{Epoch{1}, 20, false}), "");
  EXPECT_EQ(after.waits(4, {11, 12}), "");
  EXPECT_EQ(after.back(13, 3, 1, false, Standing{Epoch{1}, 20, true}), "");
  EXPECT_TRUE(after.elastic().settled()) << "nothing was lost, nothing changes";
}

TEST(Elastic, ARestartedCoordinatorGivesUpOnThoseWhoDoNotComeBack) {
  Job before;
  before.start();
  Job after(rules(), before.replayed());
  for (const int w : {1, 2}) after.back(10 + w, w, 1, false, Standing{Epoch{1}, 20, false});
  EXPECT_EQ(after.waits(5.1, {11, 12}), "seal(2,now)");
}

TEST(Elastic, ARestartedCoordinatorReplacesNobodyWhoLeftOfHisOwnWill) {
  auto r = rules();
  r.respawns = 9;
  Job before(r);
  before.start();
  before.now(Leaving{2, "SIGUSR1"});
  for (const int g : {1, 2, 3}) before.reports(g, 10);
  before.settled({1, 3}, 10);
  EXPECT_EQ(before.replayed().left, 1u);
  Job after(r, before.replayed());
  for (const int w : {1, 3}) EXPECT_EQ(after.back(10 + w, w, 2, false, Standing{Epoch{2}, 20, false}), "");
  EXPECT_EQ(after.waits(60, {11, 13}), "");
  EXPECT_EQ(after.now(LinkEnded{13}), "seal(1,now) respawn(1)") << "one that is lost";
}

// Two of four leave and two others whom nobody asked for come.
TEST(Elastic, WhoComesUnaskedTakesThePlaceOfOneThatLeftAndIsReplacedLikeAnyOther) {
  auto r = rules();
  r.wanted = 4;
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
  ASSERT_EQ(job.elastic().charter().roster.size(), 4u);
  job.settled({1, 2, 5, 6}, 20);
  Job after(r, job.replayed());
  for (const int w : {1, 2, 5, 6}) EXPECT_EQ(after.back(10 + w, w, 3, false, Standing{Epoch{3}, 20, false}), "");
  EXPECT_EQ(after.now(LinkEnded{16}), "seal(3,now) respawn(1)") << "a restarted coordinator knows it, too";
  EXPECT_EQ(job.now(LinkEnded{6}), "seal(3,now) respawn(1)");
  EXPECT_EQ(job.arrives(7), "") << "this one was asked for";
  EXPECT_EQ(job.now(LinkEnded{7}), "respawn(1)");
}

TEST(Elastic, OneTooManyThatLeavesIsNotMissed) {
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
  EXPECT_EQ(job.now(LinkEnded{3}), "seal(2,now) respawn(1)");
}

TEST(Elastic, WhoLeavesBeforeItWasLetInIsNotReplacedEither) {
  auto r = rules();
  r.respawns = 9;
  Job job(r);
  job.start();
  EXPECT_EQ(job.now(LinkEnded{3}), "seal(2,now) respawn(1)");
  job.arrives(4);
  EXPECT_EQ(job.now(Leaving{4, "SIGUSR1"}), "release(4)");
  EXPECT_EQ(job.replayed().left, 1u);
}

TEST(Elastic, ARestartedCoordinatorWaitsForWorkersThatRunAlreadyBeforeItAsksForMore) {
  auto r = rules();
  r.respawns = 9;
  Job before(r);
  before.start();
  EXPECT_EQ(before.now(LinkEnded{2}), "seal(2,now) respawn(1)");
  Job after(r, before.replayed());
  EXPECT_EQ(after.now(Adopted{1}), "") << "the one that was asked for is on its way";
  EXPECT_EQ(after.now(ProcessEnded{WorkerId{2}, "killed"}), "");
  for (const int w : {1, 3}) after.back(10 + w, w, 1, true, Standing{Epoch{1}, 20, false});
  after.settled({11, 13}, 20);
  EXPECT_EQ(after.waits(r.start_grace - 1, {11, 13}), "");
  EXPECT_EQ(after.waits(2, {11, 13}), "respawn(1)") << "it had its time to come";
  Job later(r, before.replayed());
  EXPECT_EQ(later.now(Adopted{0, 1}), "") << "the launcher has no place for it yet, and has not forgotten it";
  for (const int w : {1, 3}) later.back(10 + w, w, 1, true, Standing{Epoch{1}, 20, false});
  later.now(ProcessEnded{WorkerId{2}, "killed"});
  later.settled({11, 13}, 20);
  EXPECT_EQ(later.waits(r.start_grace + 5, {11, 13}), "");
}

TEST(Elastic, AnEpochThatWasDecidedButNotAnnouncedIsAnnouncedAfterTheRestart) {
  Job before;
  before.start();
  before.now(LinkEnded{2});
  before.reports(1, 10, true);
  before.reports(3, 10, true);  // epoch 2 is on disk; then the coordinator dies, and nobody has heard
  Job after(rules(), before.replayed());
  EXPECT_EQ(after.back(11, 1, 1, true, Standing{Epoch{1}, 10, true}), "11=e2r0/2@11");
  EXPECT_EQ(after.back(12, 2, 1, true, Standing{Epoch{1}, 10, true}), "evict(12)") << "it is not in epoch 2";
}

TEST(Elastic, ARestartedCoordinatorCountsNoTimeBeforeItsStart) {
  Job before;
  for (const int w : {1, 2, 3}) before.arrives(w);
  Elastic after(rules(), before.replayed(), 5000);
  after.open(5000);
  const Decided d = after.handle(Arrive{11, Job::as(1), Epoch{1}, true, false, Standing{Epoch{1}, 4, false}}, 5000.1);
  EXPECT_EQ(brief(d), "") << "the others may still come";
  EXPECT_EQ(said(d), "") << "nobody is late yet";
}

TEST(Elastic, ACoordinatorWithTheWrongLogRefusesWorkersOfLaterEpochs) {
  Job job;
  EXPECT_EQ(job.back(1, 1, 5, false, Standing{Epoch{5}, 20, false}), "refuse(1)");
}

TEST(Elastic, ACoordinatorThatSleptBlamesNobody) {
  Job job;
  job.start();
  EXPECT_EQ(brief(job.elastic().handle(Tick{}, 60)), "");
  EXPECT_EQ(brief(job.elastic().handle(Tick{}, 61)), "");
  EXPECT_EQ(brief(job.elastic().handle(Tick{}, 61.9)), "");
  EXPECT_EQ(brief(job.elastic().handle(Tick{}, 62.8)), "seal(3,now)") << "but then they must be heard";
}

TEST(Elastic, EndsWhenAllMembersHave) {
  Job job;
  job.start();
  EXPECT_EQ(job.now(Ended{1, 100}), "");
  EXPECT_EQ(job.now(LinkEnded{2}), "") << "training is over: no epoch follows";
  EXPECT_EQ(job.now(Ended{3, 100}), "stop");
  EXPECT_EQ(job.replayed().finished, 100);
  EXPECT_EQ(job.arrives(9), "stop(aborted)");
}

TEST(Elastic, WordsFromOldConnectionsAndEpochsChangeNothing) {
  Job job;
  job.start();
  EXPECT_EQ(job.back(21, 1, 1, false, Standing{Epoch{1}, 3, false}), "") << "a new connection of the same worker";
  EXPECT_EQ(job.now(LinkEnded{1}), "") << "the old one ends";
  EXPECT_EQ(job.now(Reported{21, Epoch{0}, {}}), "");
  EXPECT_EQ(job.now(Complained{21, Epoch{0}, Rank{1}}), "");
  EXPECT_EQ(job.now(Complained{21, Epoch{1}, Rank{17}}), "");
  EXPECT_EQ(job.now(Heard{99}), "");
}

TEST(Elastic, RefusesRulesThatCannotBe) {
  auto r = rules();
  r.most = 1;
  EXPECT_EQ(failure_of([&] { Elastic(r, {}, 0); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::group
