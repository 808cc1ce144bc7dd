#include "cohort/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/collective/plugin/backend.h"

namespace cohort::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string refusal(const std::vector<std::string>& args, const group::Environment& env = {}) {
  try {
    parse_launch_options(args, env);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "accepted";
}

TEST(LaunchOptions, EverySpellingOfHowManyMeansTheSame) {
  const std::vector<std::vector<std::string>> spellings{
      {"-n", "4"},         {"-n4"},       {"--ranks=4"},          {"-np", "4"},
      {"--num-proc", "4"}, {"--np", "4"}, {"--nproc-per-node=4"}, {"--nproc_per_node", "4"}};
  for (auto words : spellings) {
    words.emplace_back("prog");
    SCOPED_TRACE(words[0]);
    EXPECT_EQ(parse_launch_options(words, {}).ranks, "4");
  }
  EXPECT_EQ(parse_launch_options({"--nproc-per-node", "cpu", "prog"}, {}).ranks, "auto");
  EXPECT_EQ(parse_launch_options({"prog"}, {}).ranks, "1");
}

TEST(LaunchOptions, WordsAfterTheProgramAreItsOwn) {
  EXPECT_THAT(parse_launch_options({"-n", "2", "./p", "-n", "9", "--help"}, {}).command, ElementsAre("./p", "-n", "9", "--help"));
  EXPECT_THAT(parse_launch_options({"-n", "2", "--", "-odd-name", "--"}, {}).command, ElementsAre("-odd-name", "--"));
}

TEST(LaunchOptions, TorchrunLinesForOneHostAreUnderstood) {
  const auto o = parse_launch_options(
      {"--standalone", "--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id", "x",
       "--max-restarts=0", "--node_rank=0", "--master_port=1234", "--log_dir", "d", "-r", "3", "-t", "0:1,1:2", "-m", "mod", "a"},
      {});
  EXPECT_EQ(o.ranks, "2");
  EXPECT_EQ(o.job, "x");
  EXPECT_EQ(o.master_port, 1234);
  EXPECT_TRUE(o.module);
  EXPECT_EQ(o.sink_of(0, 1), Sink::both);
  EXPECT_EQ(o.sink_of(0, 2), Sink::file);
  EXPECT_EQ(o.sink_of(1, 2), Sink::both);
  EXPECT_EQ(o.sink_of(5, 1), Sink::file);
}

TEST(LaunchOptions, HorovodrunLinesForOneHostAreUnderstood) {
  const auto o = parse_launch_options(
      {"-np", "2", "-H", "localhost:2", "--output-filename", "d", "--start-timeout", "60", "--verbose", "--log-level", "INFO", "p"}, {});
  EXPECT_EQ(o.start_timeout, Seconds{60});
  EXPECT_EQ(o.output, "d");
  EXPECT_EQ(o.sink_of(1, 1), Sink::both);
  EXPECT_TRUE(o.verbose);
  EXPECT_EQ(o.log_level, "info");
}

TEST(LaunchOptions, StreamsAreANumberOrAuto) {
  EXPECT_EQ(parse_launch_options({"p"}, {}).streams, -1);
  EXPECT_EQ(parse_launch_options({"--streams", "4", "p"}, {}).streams, 4);
  EXPECT_EQ(parse_launch_options({"--streams=auto", "p"}, {}).streams, 0);
  for (const auto* wrong : {"0", "17", "many"}) EXPECT_THROW(parse_launch_options({"--streams", wrong, "p"}, {}), Failure) << wrong;
}

TEST(LaunchOptions, HorovodrunAndTorchrunLinesForSeveralHostsAreUnderstood) {
  const auto o = parse_launch_options(
      {"-np", "4", "-H", "a:2,b:2", "--network-interfaces", "eth0", "-p", "2222", "-i", "key", "--slots-per-host", "3", "p"}, {});
  EXPECT_EQ(o.hosts, "a:2,b:2");
  EXPECT_EQ(o.interface, "eth0");
  EXPECT_EQ(o.ssh_port, 2222);
  EXPECT_EQ(o.ssh_identity, "key");
  EXPECT_EQ(o.slots_per_host, 3);
  EXPECT_EQ(parse_launch_options({"-hostfile", "h", "p"}, {}).host_file, "h");
  EXPECT_EQ(parse_launch_options({"--host-discovery-script", "./find", "p"}, {}).discovery_script, "./find");
  const auto t =
      parse_launch_options({"--nnodes=2:2", "--node_rank=1", "--rdzv-endpoint", "[fd00::1]:4000", "--nproc-per-node", "2", "p"}, {});
  EXPECT_EQ(t.nodes, 2);
  EXPECT_EQ(t.node, 1);
  EXPECT_EQ(t.master_addr, "fd00::1");
  EXPECT_EQ(t.master_port, 4000);
}

TEST(LaunchOptions, BackendsAreVariablesOfTheRanks) {
  const auto o = parse_launch_options({"--backend", "gloo", "--deterministic=false", "p"}, {});
  EXPECT_EQ(o.variables.at("COHORT_BACKEND"), "gloo");
  EXPECT_EQ(o.variables.at("COHORT_DETERMINISTIC"), "false");
  EXPECT_THAT(refusal({"--backend", "glo", "p"}), HasSubstr("did you mean 'gloo'"));
}

TEST(LaunchOptions, WhatNeedsElasticityIsRefusedWithASentence) {
  EXPECT_THAT(refusal({"--nnodes", "1:4", "p"}), HasSubstr("--nnodes: '1:4' is refused: an elastic job has one launcher"));
  EXPECT_THAT(refusal({"-H", "a", "--hostfile", "f", "p"}), HasSubstr("hosts are named once"));
  EXPECT_THAT(refusal({"--reset-limit", "2", "p"}), HasSubstr("--min-n, --max-n, --respawns"));
  EXPECT_THAT(refusal({"--max_restarts", "3", "p"}), HasSubstr("--respawns"));
  EXPECT_THAT(refusal({"--gloo", "p"}), HasSubstr("--backend gloo"));
  EXPECT_THAT(refusal({"--mpi", "p"}), HasSubstr("COHORT_BACKEND=mpi"));
  EXPECT_THAT(refusal({"--rdzv-backend", "etcd", "p"}), HasSubstr("inside this launcher"));
  EXPECT_THAT(refusal({"--fusion-threshold-mb", "64", "p"}), HasSubstr("Horovod's own engine"));
}

TEST(LaunchOptions, LimitsOfElasticJobsAreUnderstoodInEverySpelling) {
  for (const char* flag : {"--min-n", "--min-np", "--min_num_proc"}) {
    const LaunchOptions o = parse_launch_options({"-n", "4", flag, "2", "--max-np=6", "--respawns", "9", "--lost-after", "500ms", "p"}, {});
    EXPECT_TRUE(o.elastic());
    EXPECT_EQ(o.min_workers, 2);
    EXPECT_EQ(o.max_workers, 6);
    EXPECT_EQ(o.respawns, 9);
    EXPECT_EQ(o.lost_after, Seconds{0.5});
  }
  EXPECT_FALSE(parse_launch_options({"-n", "4", "p"}, {}).elastic());
  EXPECT_TRUE(parse_launch_options({"-n", "4", "--min-n", "2", "--supervised", "p"}, {}).supervised);
  EXPECT_TRUE(parse_launch_options({"-H", "a:2,b:2", "--min-n", "2", "--supervised", "p"}, {}).supervised);
  EXPECT_THAT(refusal({"-n", "4", "--supervised", "p"}), HasSubstr("--supervised without --min-n"));
  EXPECT_THAT(refusal({"--max-n", "4", "p"}), HasSubstr("--max-n without --min-n"));
  const LaunchOptions far =
      parse_launch_options({"--min-n", "1", "-H", "a:2", "--host-cool-down", "1min", "--discovery-interval=2s", "p"}, {});
  EXPECT_EQ(far.host_cool_down, Seconds{60});
  EXPECT_EQ(far.discovery_interval, Seconds{2});
  EXPECT_THAT(refusal({"--min-n", "1", "--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "p"}),
              HasSubstr("-H instead of --nnodes"));
  EXPECT_THAT(refusal({"--min-n", "1", "--discovery-interval", "1ms", "p"}), HasSubstr("below 50 ms"));
  EXPECT_THAT(refusal({"--min-n", "1", "--lost-after", "1ms", "p"}), HasSubstr("every busy worker"));
  EXPECT_THAT(refusal({"--min-n", "1", "--backend", "gloo", "p"}), HasSubstr("--backend gloo with --min-n"));
  EXPECT_NO_THROW(parse_launch_options({"--min-n", "1", "--backend", "native", "p"}, {}));
}

TEST(LaunchOptions, TimeoutsAndQuorumOfElasticJobsHaveDefaultsAndOptions) {
  const LaunchOptions plain = parse_launch_options({"--min-n", "1", "p"}, {});
  EXPECT_EQ(plain.settle_limit, Seconds{120});
  EXPECT_EQ(plain.wait_limit, Seconds{600});
  EXPECT_EQ(plain.quorum, elastic::Quorum::minimum);
  const LaunchOptions given =
      parse_launch_options({"--min-n", "1", "--settle-limit", "10min", "--wait-limit=45", "--quorum", "majority", "p"}, {});
  EXPECT_EQ(given.settle_limit, Seconds{600});
  EXPECT_EQ(given.wait_limit, Seconds{45});
  EXPECT_EQ(given.quorum, elastic::Quorum::majority);
  EXPECT_EQ(parse_launch_options({"--min-np", "1", "--elastic-timeout", "300", "p"}, {}).wait_limit, Seconds{300})
      << "horovodrun's word for it";
  EXPECT_THAT(refusal({"--min-n", "1", "--quorum", "most", "p"}), HasSubstr("--quorum: "));
  EXPECT_EQ(plain.held_state, elastic::HeldState::whole);
  EXPECT_EQ(parse_launch_options({"--min-n", "1", "--worker-state", "buddy", "p"}, {}).held_state, elastic::HeldState::shard_and_buddy);
  EXPECT_THAT(refusal({"--min-n", "1", "--worker-state", "half", "p"}), HasSubstr("--worker-state: "));
  EXPECT_THAT(refusal({"--min-n", "1", "--settle-limit", "0", "p"}), HasSubstr("no worker has the time to join"));
}

TEST(LaunchOptions, TheStartTimeoutIsReadFromTheEnvironmentToo) {
  EXPECT_EQ(parse_launch_options({"p"}, {{"COHORT_START_TIMEOUT", "5min"}}).start_timeout, Seconds{300});
  EXPECT_EQ(parse_launch_options({"--start-timeout", "2s", "p"}, {{"COHORT_START_TIMEOUT", "5min"}}).start_timeout, Seconds{2});
}

TEST(LaunchOptions, MistakesAreAnsweredWithTheNearestName) {
  EXPECT_THAT(refusal({"--otuput", "d", "p"}), HasSubstr("did you mean --output?"));
  EXPECT_THAT(refusal({"--comm", "mpi", "p"}), HasSubstr("there is no option --comm, it is called --backend now;"));
  EXPECT_THAT(refusal({"--bits=free", "p"}), HasSubstr("there is no option --bits, it is called --deterministic now;"));
  EXPECT_THAT(refusal({"--bind", "cores", "p"}), HasSubstr("did you mean 'core'"));
  EXPECT_THAT(refusal({"-n", "0", "p"}), HasSubstr("-n: '0' is not a number from 1 to 4096"));
  EXPECT_THAT(refusal({"-n", "p"}), HasSubstr("-n:"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("-n needs a value"));
  EXPECT_THAT(refusal({"--quiet=yes", "p"}), HasSubstr("takes no value"));
  EXPECT_THAT(refusal({"-n", "2"}), HasSubstr("nothing to run"));
  EXPECT_THAT(refusal({"-r", "3", "p"}), HasSubstr("--output DIR"));
}

TEST(LaunchOptions, ClusterOperatorsVariablesAreReadAndTheCommandLineWins) {
  const group::Environment env{{"PET_NPROC_PER_NODE", "3"}, {"PET_NNODES", "1"}};
  EXPECT_EQ(parse_launch_options({"p"}, env).ranks, "3");
  EXPECT_EQ(parse_launch_options({"-n", "2", "p"}, env).ranks, "2");
  EXPECT_EQ(parse_launch_options({"p"}, {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "n0"}, {"PET_MASTER_PORT", "7"}})
                .master_port,
            7);
  EXPECT_THAT(refusal({"p"}, {{"PET_NNODES", "x"}}), HasSubstr("PET_NNODES"));
}

TEST(LaunchOptions, HelpListsTheBackendsOfTheRegistry) {
  for (const auto& name : collective::backend_names()) EXPECT_THAT(launch_help(), HasSubstr(name));
  EXPECT_THAT(launch_help(), Not(HasSubstr("{}")));
}

TEST(LaunchOptions, TimesAreReadWithTheirUnits) {
  EXPECT_EQ(parse_launch_options({"--timeout=10min", "--grace", "200ms", "p"}, {}).timeout, Seconds{600});
  EXPECT_THAT(refusal({"--timeout", "soon", "p"}), HasSubstr("soon"));
}

}  // namespace
}  // namespace cohort::launch
