// However a job of several hosts ends, nothing of it stays behind on any of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "cluster.h"

namespace cohort::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Seconds kReady{20};

// Two hosts with two ranks each; every rank has a child in its group and a daemon in a session of its own.
class HostsEndingProcess : public testing::Test {
 protected:
  HostsEndingProcess() : job_(cluster_.run_words(kProcessTree), cluster_.variables()) {
    for (int rank = 0; rank < 4; ++rank)
      for (const char* word : {"ready", "daemon"}) ready_ = ready_ && job_.wait_for_text("[" + std::to_string(rank) + "] " + word, kReady);
  }
  void SetUp() override { ASSERT_TRUE(ready_) << job_.err(); }

  // The process on that host whose command line has these words: the first, or the one whose parent has them, too.
  pid_t find(int host, const std::string& words, bool below) const {
    for (const pid_t pid : cluster_.processes_on(host))
      if (command_line(pid).find(words) != std::string::npos && (command_line(parent_of(pid)).find(words) != std::string::npos) == below)
        return pid;
    return -1;
  }
  // Kills it; everything on every host is gone two seconds later.
  Ended kill_and_watch(pid_t victim) {
    EXPECT_GT(victim, 0);
    const auto begin = Clock::now();
    kill(victim, SIGKILL);
    EXPECT_TRUE(cluster_.empty_within(2s)) << cluster_.processes().size();
    const Seconds took = Clock::now() - begin;
    RecordProperty("gone_after_ms", static_cast<int>(took.count() * 1000));
    return job_.wait();
  }

  static constexpr const char* kAgent = "agent --stdio";
  const Words kProcessTree{"-H", "h1:2,h2:2", "sh", "-c",
                           "sleep 1000 & setsid sh -c 'trap \"\" HUP TERM; echo daemon; sleep 1000' & echo ready; wait"};
  Cluster cluster_{2};
  Started job_;
  bool ready_ = true;
};

TEST_F(HostsEndingProcess, AWorkerIsKilled) {
  const auto ranks = [&] {
    std::vector<pid_t> found;
    for (const pid_t pid : cluster_.processes_on(2))
      if (command_line(parent_of(pid)).find(kAgent) != std::string::npos && command_line(pid).find("echo ready") != std::string::npos)
        found.push_back(pid);
    return found;
  }();
  ASSERT_EQ(ranks.size(), 2u);
  const auto r = kill_and_watch(ranks[0]);
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_THAT(r.err, AllOf(HasSubstr("on host h2 failed first: killed by SIGKILL"), HasSubstr("; the 3 still running were stopped")));
}

TEST_F(HostsEndingProcess, AnAgentIsKilled) {
  const auto r = kill_and_watch(find(2, kAgent, true));
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("host 'h2' failed: its agent is gone"));
}

TEST_F(HostsEndingProcess, AnAgentsForegroundProcessIsKilled) {
  const auto r = kill_and_watch(find(2, kAgent, false));
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("host 'h2' failed: its agent is gone"));
}

TEST_F(HostsEndingProcess, TheRemoteShellIsKilled) {
  const auto r = kill_and_watch(find(0, " h2 exec", false));
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("host 'h2' failed: its agent is gone (killed by SIGKILL)"));
}

TEST_F(HostsEndingProcess, TheLauncherIsKilled) {
  const auto r = kill_and_watch(find(0, "run -H h1:2", true));
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_THAT(r.err, HasSubstr("the launcher (process"));
}

TEST_F(HostsEndingProcess, TheForegroundProcessIsKilled) { kill_and_watch(find(0, "run -H h1:2", false)); }

TEST_F(HostsEndingProcess, ASecondInterruptKillsEverywhere) {
  job_.signal(SIGINT);
  job_.signal(SIGINT);
  const auto r = job_.wait();
  EXPECT_EQ(r.code, 128 + SIGINT);
  EXPECT_TRUE(cluster_.empty_within(2s));
}

TEST(HostsSignalsProcess, ReachEveryRankAndAGracefulEndIsNoFailure) {
  const Cluster cluster(2);
  for (const int number : {SIGTERM, SIGINT, SIGQUIT}) {
    Started job(cluster.run_words(
                    {"-H", "h1,h2", "sh", "-c", "trap 'echo caught; exit 0' TERM INT QUIT; echo ready; while :; do sleep 0.05; done"}),
                cluster.variables());
    ASSERT_TRUE(job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady)) << job.err();
    job.signal(number);
    const auto r = job.wait();
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("[0] caught"), HasSubstr("[1] caught")));
  }
  EXPECT_TRUE(cluster.empty_within(2s));
}

TEST(HostsSignalsProcess, UserSignalsReachTheRanksAndTheJobGoesOn) {
  const Cluster cluster(2);
  Started job(cluster.run_words({"-H", "h1,h2", "sh", "-c", "trap 'echo caught; exit 0' USR1; echo ready; while :; do sleep 0.05; done"}),
              cluster.variables());
  ASSERT_TRUE(job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady)) << job.err();
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait().code, 0);
}

TEST(HostsSignalsProcess, ALostRankIsNamedByItsPeersOnTheOtherHost) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1:2,h2:2", LAUNCH_RANK, "lost", "3"});
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_THAT(r.err, HasSubstr("rank 3 on host h2 failed first: killed by SIGKILL"));
  EXPECT_TRUE(cluster.empty_within(2s));
}

}  // namespace
}  // namespace cohort::launch
