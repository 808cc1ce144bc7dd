// The rendezvous of ranks: under our launcher and under others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>

#include "cohort/base/file.h"
#include "support.h"

namespace cohort::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kRank = LAUNCH_RANK;

TEST(RendezvousProcess, RanksOfOurLauncherReduceTogether) {
  const auto r = cohort_run({"-n", "4", kRank, "hello"}, {{"COHORT_LOG", "debug"}});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(lines_of(r.out).size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string here = std::to_string(rank);
    EXPECT_THAT(r.out,
                HasSubstr("[" + here + "] rank " + here + " of 4, local " + here + " of 4, sum 10, place cohort, transport shm, epoch 0"));
  }
  EXPECT_THAT(r.err, HasSubstr("by the variables of cohort: COHORT_RANK=2 COHORT_SIZE=4"));
}

TEST(RendezvousProcess, TheTransportCanBeChosenAndAWrongWordIsRefused) {
  const auto r = cohort_run({"-n", "2", kRank, "hello"}, {{"COHORT_TRANSPORT", "tcp"}});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("transport tcp"));
  const auto wrong = cohort_run({"-n", "1", kRank, "hello"}, {{"COHORT_TRANSPORT", "tpc"}});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("COHORT_TRANSPORT"));
}

TEST(RendezvousProcess, UnderTlsRanksReduceTogetherByFlagAndByVariable) {
  const auto flag = cohort_run({"-n", "3", "--tls", kRank, "hello"}, {{"COHORT_TRANSPORT", "tcp"}});
  EXPECT_EQ(flag.code, 0) << flag.err;
  EXPECT_THAT(flag.out, HasSubstr("sum 6, place cohort, transport tcp"));
  const auto variable = cohort_run({"-n", "2", kRank, "hello"}, {{"COHORT_TLS", "true"}});
  EXPECT_EQ(variable.code, 0) << variable.err;
  EXPECT_THAT(variable.out, HasSubstr("transport shm")) << "what stays in memory needs no encryption";
}

TEST(RendezvousProcess, ARankWithoutTlsIsRefusedByALauncherThatRequiresIt) {
  const auto begin = Clock::now();
  const auto r = cohort_run({"-n", "2", "--tls", "env", "COHORT_TLS=false", kRank, "hello"});
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.err, HasSubstr("speaks TLS and this process does not: give --tls"));
  const auto other = cohort_run({"-n", "2", "env", "COHORT_TLS=true", kRank, "hello"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("speaks without TLS and this process demands it: give --tls"));
  EXPECT_LT(Clock::now() - begin, stretched(5s));  // two jobs, started and ended
}

TEST(RendezvousProcess, NothingSetIsAWorldOfOne) {
  const auto r = run({kRank, "hello"}, {{"COHORT_LOG", "info"}});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("rank 0 of 1, local 0 of 1, sum 1, place alone"));
  EXPECT_THAT(r.err, HasSubstr("a world of one: no launcher's variables are set"));
}

TEST(RendezvousProcess, AMissingRankIsNamedWithinFiveSecondsByLauncherAndRanks) {
  Started job(cohort_run_words({"-n", "4", kRank, "late", "3"}));
  const auto begin = Clock::now();
  EXPECT_TRUE(job.wait_for_text("cohort run: waiting for rank 3 of 4", stretched(5s))) << job.err();
  for (const char* rank : {"rank 0", "rank 1", "rank 2"})
    EXPECT_TRUE(job.wait_for_text(std::string(rank) + " warning: waiting for rank 3 of 4", stretched(5s))) << job.err();
  EXPECT_LT(Clock::now() - begin, stretched(5s));
}

TEST(RendezvousProcess, AStartThatTakesTooLongNamesTheMissing) {
  const auto r = cohort_run({"-n", "2", "--start-timeout", "1s", kRank, "late", "1"});
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("[0] rendezvous: rank 1 of 2 has not joined within 1 s"));
  EXPECT_THAT(r.err, HasSubstr("rank 0 failed first: exit status 1"));
}

TEST(RendezvousProcess, ARankThatEndsBeforeJoiningIsTheCauseAndNotAWait) {
  const auto r = cohort_run({"-n", "3", "--grace", "1.5s", kRank, "quit", "1"});
  EXPECT_EQ(r.code, 5);
  EXPECT_LT(r.took, stretched(3s));
  EXPECT_THAT(r.err, HasSubstr("rank 1 failed first: exit status 5"));
}

TEST(RendezvousProcess, AKilledRankIsNamedAsTheCause) {
  const auto r = cohort_run({"-n", "3", kRank, "lost", "1"});
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_LT(r.took, stretched(4s));
  EXPECT_THAT(r.err, HasSubstr("rank 1 failed first: killed by SIGKILL"));
}

TEST(RendezvousProcess, AHundredStartsAndStopsLeakNothing) {
  const auto r = cohort_run({"-n", "2", kRank, "cycles", "100"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("epoch 99"));
}

TEST(RendezvousProcess, SignalsDoNotDisturbStartsAndStops) {
  const auto r = cohort_run({"-n", "3", kRank, "signals", "30"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_EQ(cohort_run({"-n", "2", kRank, "signals", "10"}, {{"COHORT_TRANSPORT", "tcp"}}).code, 0);
}

TEST(RendezvousProcess, TheSecretIsNeverOnTheCommandLineOrInTheEnvironment) {
  Started job(
      cohort_run_words({"-n", "1", "-v", "sh", "-c", "od -An -tx1 $COHORT_SECRET_FILE | tr -d ' \\n'; echo; env; exec sleep 1000"}));
  ASSERT_TRUE(job.wait_for_text("WORLD_SIZE", 20s));
  const std::string secret = lines_of(job.out()).at(0).substr(4);
  ASSERT_EQ(secret.size(), 64u);
  const std::string rest = job.out().substr(job.out().find('\n')) + job.err();
  EXPECT_THAT(rest, Not(HasSubstr(secret)));
}

// Two ranks by hand, as another launcher starts them.
std::vector<Ended> start_two(const std::function<Variables(int)>& variables, const Words& how = {"hello"}) {
  std::vector<std::unique_ptr<Started>> ranks;
  Words words{kRank};
  words.insert(words.end(), how.begin(), how.end());
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Started>(words, variables(r)));
  std::vector<Ended> ended;
  for (auto& rank : ranks) ended.push_back(rank->wait());
  return ended;
}

TEST(RendezvousProcess, StartedByOthersAHundredStartsAndStopsLeakNothing) {
  const std::string id = "cycles-" + std::to_string(getpid());
  const auto by_hand = [&](int r) {
    return Variables{{"RANK", std::to_string(r)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"COHORT_JOB", id}};
  };
  for (const auto& rank : start_two(by_hand, {"cycles", "100"})) EXPECT_EQ(rank.code, 0) << rank.out << rank.err;
}

TEST(RendezvousProcess, StartedBySlurmTheyFindEachOther) {
  const std::string id = std::to_string(getpid());
  const auto ranks = start_two([&](int r) {
    return Variables{{"SLURM_PROCID", std::to_string(r)},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", std::to_string(r)},
                     {"SLURM_NODEID", "0"},
                     {"SLURM_JOB_ID", id},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2"},
                     {"COHORT_LOG", "info"}};
  });
  EXPECT_THAT(ranks[0].out, HasSubstr("rank 0 of 2, local 0 of 2, sum 3, place slurm")) << ranks[0].err;
  EXPECT_THAT(ranks[1].out, HasSubstr("rank 1 of 2, local 1 of 2, sum 3, place slurm")) << ranks[1].err;
  EXPECT_THAT(ranks[0].err, HasSubstr("by the variables of slurm: SLURM_PROCID=0"));
}

TEST(RendezvousProcess, OnSeveralHostsASecretFileIsRequiredAndThenEnough) {
  const TempDir folder("launch");
  write_file_atomically(folder.file("secret"), std::string(64, 'a'), 0600);
  const auto several = [&](int r) {
    return Variables{
        {"RANK", std::to_string(r)}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"COHORT_START_TIMEOUT", "20"}};
  };
  const auto refused = run({kRank, "hello"}, several(0));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("COHORT_SECRET_FILE"));
  const std::string port = std::to_string(20000 + getpid() % 10000);
  const auto ranks = start_two([&](int r) {
    Variables v = several(r);
    v["COHORT_SECRET_FILE"] = folder.file("secret");
    v["COHORT_RENDEZVOUS"] = "127.0.0.1:" + port;
    return v;
  });
  EXPECT_THAT(ranks[1].out, HasSubstr("rank 1 of 2, local 0 of 1, sum 3")) << ranks[1].err;
}

#ifdef LAUNCH_MPIRUN
TEST(RendezvousProcess, StartedByMpirunTheyFindEachOther) {
  // isolated: one host, so mpirun need not look for ssh.
  const auto r = run({LAUNCH_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated", "-n", "2", kRank, "hello"},
                     {{"COHORT_LOG", "info"}});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre(HasSubstr("rank 0 of 2, local 0 of 2, sum 3, place openmpi"), HasSubstr("rank 1 of 2")));
  EXPECT_THAT(r.err, HasSubstr("by the variables of openmpi: OMPI_COMM_WORLD_RANK=0"));
}
#endif

#ifdef LAUNCH_PYTHON
TEST(RendezvousProcess, StartedByTorchrunTheyFindEachOther) {
  const auto r = run({LAUNCH_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", kRank, "hello"},
                     {{"COHORT_LOG", "info"}});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre(HasSubstr("rank 0 of 2, local 0 of 2, sum 3, place torchrun"), HasSubstr("rank 1 of 2")));
  EXPECT_THAT(r.err, HasSubstr("by the variables of torchrun: RANK=0 WORLD_SIZE=2"));
}

TEST(RendezvousProcess, TorchsOwnProcessGroupRunsUnderOurLauncher) {
  const TempDir folder("launch");
  write_file_atomically(folder.file("train.py"),
                        "import torch, torch.distributed as d\n"
                        "d.init_process_group('gloo')\n"
                        "x = torch.ones(1) * (d.get_rank() + 1)\n"
                        "d.all_reduce(x)\n"
                        "print('torch sum', int(x))\n"
                        "d.destroy_process_group()\n");
  const auto r = cohort_run({"-n", "2", folder.file("train.py")}, {{"PYTHON_EXEC", LAUNCH_PYTHON}});
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre("[0] torch sum 3", "[1] torch sum 3")) << r.err;
}
#endif

}  // namespace
}  // namespace cohort::launch
