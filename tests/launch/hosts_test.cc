// Several hosts: rendezvous over the network, ranks and variables, and no shared memory between hosts although these share a kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster.h"
#include "cohort/base/file.h"

namespace cohort::launch {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(HostsProcess, RanksOfTwoHostsReduceTogetherAndNeverShareMemory) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1:2,h2:2", LAUNCH_RANK});
  EXPECT_EQ(r.code, 0) << r.err;
  const auto lines = sorted_lines_of(r.out);
  ASSERT_EQ(lines.size(), 4u) << r.out;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(lines[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("[" + std::to_string(rank) + "] rank " + std::to_string(rank) + " of 4"),
                      HasSubstr("local " + std::to_string(rank % 2) + " of 2"), HasSubstr("sum 10")));
  EXPECT_TRUE(cluster.empty_within(2s));
}

TEST(HostsProcess, OnePerHostUsesTheNetwork) {
  const Cluster cluster(4);
  const auto r = cluster.run({"-H", "h1,h2,h3,h4", LAUNCH_RANK});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const auto& line : lines_of(r.out))
    EXPECT_THAT(line, AllOf(HasSubstr("sum 10"), HasSubstr("transport tcp"), HasSubstr("local 0 of 1")));
  EXPECT_EQ(lines_of(r.out).size(), 4u);
}

TEST(HostsProcess, UnderTlsAgentsAndRanksOfTwoHostsConnect) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1:2,h2", "--tls", LAUNCH_RANK, "hello"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("sum 6"));
}

TEST(HostsProcess, SharedMemoryBetweenHostsIsRefusedByName) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1,h2", LAUNCH_RANK}, {{"COHORT_TRANSPORT", "shm"}});
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.err, HasSubstr("it is on host h2, this one on host h1"));
}

TEST(HostsProcess, VariablesAreRightOnEveryHost) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1:2,h2:1", "sh", "-c",
                              "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $HOROVOD_LOCAL_RANK "
                              "$HOROVOD_CROSS_RANK $HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME $COHORT_HOST $MASTER_ADDR"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(sorted_lines_of(r.out),
              ElementsAre("[0] 0 3 0 2 0 2 0 0 2 h1 h1 " + Cluster::address(1), "[1] 1 3 1 2 0 2 1 0 1 h1 h1 " + Cluster::address(1),
                          "[2] 2 3 0 1 1 2 0 1 2 h2 h2 " + Cluster::address(1)));
}

TEST(HostsProcess, FilesAndScriptsNameHosts) {
  const Cluster cluster(2);
  const std::string file = "/tmp/" + unique_name("hosts");
  std::ofstream(file) << "# two\nh1 slots=1\nh2:4\n";
  EXPECT_THAT(sorted_lines_of(cluster.run({"--hostfile", file, "-n", "3", "sh", "-c", "echo $COHORT_HOST"}).out),
              ElementsAre("[0] h1", "[1] h2", "[2] h2"));
  const auto found = cluster.run({"--host-discovery-script", "cat " + file, "-n", "2", "sh", "-c", "echo $COHORT_HOST"});
  EXPECT_THAT(sorted_lines_of(found.out), ElementsAre("[0] h1", "[1] h2")) << found.err;
  const auto failed = cluster.run({"--host-discovery-script", "exit 3", "true"});
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("exit status 3"));
  const auto few = cluster.run({"--hostfile", file, "-n", "9", "true"});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.err, HasSubstr("-n 9, but 2 hosts have 5 slots"));
  std::filesystem::remove(file);
}

TEST(HostsProcess, InputReachesRankZero) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1,h2", "cat"}, {}, "typed\n");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(lines_of(r.out), ElementsAre("[0] typed"));
}

TEST(HostsProcess, TheCauseOfAFailureIsPrintedLastAndItsStatusIsKept) {
  const Cluster cluster(2);
  const auto r = cluster.run({"-H", "h1,h2", "sh", "-c", "test $RANK = 0 && exec sleep 1000; echo warned >&2; exit 7"});
  EXPECT_EQ(r.code, 7);
  EXPECT_THAT(r.err, HasSubstr("rank 1 on host h2 failed first: exit status 7"));
  EXPECT_TRUE(r.err.ends_with("    warned\n")) << r.err;
  EXPECT_LT(r.took, stretched(4s));
}

TEST(HostsProcess, LargeOutputIsCompleteInTheFilesOfItsRank) {
  const Cluster cluster(2);
  const std::string folder = "/tmp/" + unique_name("output");
  const auto r = cluster.run({"-H", "h1,h2", "-o", folder, "-r", "3", "seq", "1", "200000"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out, "");
  std::string expected;
  for (int i = 1; i <= 200000; ++i) expected += std::to_string(i) + "\n";
  for (const char* rank : {"0", "1"}) {
    std::ifstream file(folder + "/rank." + rank + "/stdout");
    EXPECT_TRUE(expected == std::string(std::istreambuf_iterator<char>(file), {})) << "rank " << rank;
  }
  std::filesystem::remove_all(folder);
}

TEST(HostsProcess, NeitherSecretNorVariablesAreInAnArgumentList) {
  const Cluster cluster(2);
  Started job(cluster.run_words({"-H", "h1,h2", "sh", "-c", "echo ready $PRIVATE; sleep 1000"}),
              cluster.variables({{"PRIVATE", "b1rds-of-a"}}));
  ASSERT_TRUE(job.wait_for_text("[0] ready b1rds-of-a", 20s) && job.wait_for_text("[1] ready b1rds-of-a", 20s)) << job.err();
  int seen = 0;
  for (const pid_t pid : cluster.processes()) {
    seen += command_line(pid).find("agent --stdio") != std::string::npos ? 1 : 0;
    EXPECT_THAT(command_line(pid), Not(HasSubstr("b1rds-of-a")));
    EXPECT_THAT(command_line(pid), Not(HasSubstr("COHORT_")));
  }
  EXPECT_GE(seen, 4);  // the agents, two processes each
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 128 + SIGTERM);
  EXPECT_TRUE(cluster.empty_within(2s));
}

TEST(HostsProcess, AHostThatCannotBeReachedIsNamedWithTheErrorOfItsShell) {
  const Cluster cluster(1);
  const auto r = cluster.run({"-H", "h1,h7", "touch", "/tmp/cohort-never-" + unique_name("x")});
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("host 'h7' cannot take part: its remote shell ended (exit status 255) before an agent answered: "
                               "ssh: connect to host h7 port 22: No route to host"));
  EXPECT_LT(r.took, stretched(3s));
  EXPECT_TRUE(cluster.empty_within(2s));
}

TEST(HostsProcess, AHostThatDoesNotAnswerFailsAtItsDeadline) {
  const Cluster cluster(1);
  const std::string shell = "/tmp/" + unique_name("shell");
  std::ofstream(shell) << "#!/bin/sh\nexec sleep 1000\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const auto r = cluster.run({"-H", "h1", "--start-timeout", "1", "--ssh", shell, "true"});
  EXPECT_EQ(r.code, 124);
  EXPECT_THAT(r.err, HasSubstr("host 'h1' cannot take part: its agent has not answered within 1 s"));
  EXPECT_LT(r.took, stretched(5s));
  std::filesystem::remove(shell);
}

TEST(HostsProcess, OutputOfLoginScriptsIsSkipped) {
  const Cluster cluster(1);
  const std::string shell = "/tmp/" + unique_name("shell");
  std::ofstream(shell) << "#!/bin/sh\necho Welcome to this host\nexec " LAUNCH_SHELL " \"$@\"\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const auto r = cluster.run({"-H", "h1", "--ssh", shell, "sh", "-c", "echo fine"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(lines_of(r.out), ElementsAre("[0] fine"));
  std::filesystem::remove(shell);
}

TEST(HostsProcess, AnInterfaceCanBeNamed) {
  const Cluster cluster(2);
  EXPECT_EQ(cluster.run({"-H", "h1,h2", "--interface", "ib0,eth0", LAUNCH_RANK}).code, 0);
  const auto r = cluster.run({"-H", "h1,h2", "--network-interfaces", "ib9", LAUNCH_RANK});
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.err, AllOf(HasSubstr("no interface 'ib9' is up on this host"), HasSubstr("eth0 (" + Cluster::address(0) + ")")));
}

TEST(HostsProcess, AMissingProgramIsReportedWithItsHost) {
  const Cluster cluster(2);
  const std::string folder = "/tmp/" + unique_name("programs");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/odd") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(folder + "/odd", std::filesystem::perms::owner_all);
  const auto r = cluster.run({"-H", "h1,h2", folder + "/odd"});
  EXPECT_EQ(r.code, 127);
  EXPECT_THAT(r.err, AllOf(HasSubstr("host 'h"), HasSubstr("its interpreter (the #! line) does not exist")));
  EXPECT_TRUE(cluster.empty_within(2s));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cohort::launch
