// However a job ends, nothing of it stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>

#include "cohort/net/socket/address.h"
#include "support.h"

namespace cohort::launch {
namespace {

using testing::HasSubstr;

constexpr Seconds kReady{20};

// Two ranks, each with a child in its group and a daemon in a session of its own.
const Words kProcessTree{"-n", "2",  "-v",
                         "sh", "-c", "sleep 1000 & setsid sh -c 'trap \"\" HUP TERM; echo daemon; sleep 1000' & echo ready; wait"};

bool all_are_running(Started& job) {
  return job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady) && job.wait_for_text("[0] daemon", kReady) &&
         job.wait_for_text("[1] daemon", kReady);
}

pid_t launcher_of(const Started& job) {
  const auto children = children_of(job.pid());
  return children.size() == 1 ? children[0] : -1;
}

std::string after(const std::string& text, const std::string& words) {
  const auto at = text.find(words);
  return at == text.npos ? "" : text.substr(at + words.size(), text.find(';', at) - at - words.size());
}

bool accepts_connections(const std::string& where) {
  const auto to = net::SocketAddress::of(net::Address::parse(where));
  const Fd fd{socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  return connect(fd.get(), to.get(), to.length) == 0;
}

TEST(EndingProcess, KillingTheForegroundProcessLeavesNothingBehind) {
  Started job(cohort_run_words(kProcessTree));
  ASSERT_TRUE(all_are_running(job)) << job.err();
  const std::string coordinator = after(job.err(), "rendezvous at ");
  EXPECT_TRUE(accepts_connections(coordinator));
  job.signal(SIGKILL);
  EXPECT_TRUE(job.all_gone_within(2s)) << job.marked_processes().size();
  EXPECT_FALSE(accepts_connections(coordinator));
}

TEST(EndingProcess, KillingTheLauncherLeavesNothingBehind) {
  Started job(cohort_run_words(kProcessTree));
  ASSERT_TRUE(all_are_running(job)) << job.err();
  const pid_t launcher = launcher_of(job);
  ASSERT_GT(launcher, 0);
  kill(launcher, SIGKILL);
  const auto r = job.wait();
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_THAT(r.err, HasSubstr("the launcher (process"));
  EXPECT_TRUE(job.all_gone_within(2s));
}

TEST(EndingProcess, KillingARankEndsItsPeersAndAllTheirChildren) {
  Started job(cohort_run_words(kProcessTree));
  ASSERT_TRUE(all_are_running(job)) << job.err();
  const auto ranks = children_of(launcher_of(job));
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  const auto begin = Clock::now();
  EXPECT_EQ(job.wait().code, 128 + SIGKILL);
  EXPECT_LT(Clock::now() - begin, stretched(2s));
  EXPECT_TRUE(job.marked_processes().empty());
}

TEST(EndingProcess, ANormalEndTakesDaemonsWithIt) {
  Started job(cohort_run_words({"-n", "2", "sh", "-c", "setsid sleep 1000 & exit 0"}));
  const auto r = job.wait();
  EXPECT_EQ(r.code, 0);
  EXPECT_LT(r.took, stretched(2s));
  EXPECT_TRUE(job.marked_processes().empty());
}

const Words kTraps{
    "-n", "2", "sh", "-c",
    "trap 'echo int; exit 0' INT; trap 'echo term; exit 4' TERM; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done"};

TEST(EndingProcess, SigintIsForwardedAndAGracefulEndIsNoFailure) {
  Started job(cohort_run_words(kTraps));
  ASSERT_TRUE(job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady));
  job.signal(SIGINT);
  const auto r = job.wait();
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.out, HasSubstr("[0] int\n"));
  EXPECT_THAT(r.out, HasSubstr("[1] int\n"));
  EXPECT_THAT(r.err, HasSubstr("stopped by SIGINT"));
}

TEST(EndingProcess, SigtermIsForwardedAndIsInTheExitStatus) {
  Started job(cohort_run_words(kTraps));
  ASSERT_TRUE(job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady));
  job.signal(SIGUSR1);
  ASSERT_TRUE(job.wait_for_text("[0] usr1", kReady) && job.wait_for_text("[1] usr1", kReady));
  job.signal(SIGTERM);
  const auto r = job.wait();
  EXPECT_EQ(r.code, 128 + SIGTERM);
  EXPECT_THAT(r.out, HasSubstr("[1] term\n"));
}

TEST(EndingProcess, ASecondSigintKillsAtOnce) {
  Started job(cohort_run_words({"-n", "2", "sh", "-c", "trap 'echo never' INT TERM; echo ready; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(job.wait_for_text("[0] ready", kReady) && job.wait_for_text("[1] ready", kReady));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for_text("[0] never", kReady) && job.wait_for_text("[1] never", kReady));
  job.signal(SIGINT);
  const auto begin = Clock::now();
  EXPECT_EQ(job.wait().code, 128 + SIGINT);
  EXPECT_LT(Clock::now() - begin, stretched(2s));
  EXPECT_TRUE(job.marked_processes().empty());
}

TEST(EndingProcess, NoNamedSharedMemoryIsEverMade) {
  const auto r = cohort_run({"-n", "2", LAUNCH_RANK, "hello"});
  EXPECT_EQ(r.code, 0) << r.err;
  std::error_code missing;                                                            // a machine may have no /dev/shm
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", missing))  // folders there are other tests' own
    if (entry.is_regular_file()) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("cohort")) << entry.path();
    }
}

}  // namespace
}  // namespace cohort::launch
