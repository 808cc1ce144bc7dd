// The pure parts of agents: their stream, their messages, the command lines that start them, and where a job is placed.
#include "cohort/launch/agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "cohort/base/error.h"
#include "cohort/base/slowdown.h"
#include "cohort/launch/agent_channel.h"
#include "cohort/launch/agent_messages.h"
#include "cohort/launch/agent_probe.h"
#include "cohort/launch/placement.h"
#include "cohort/launch/remote_shell.h"

namespace cohort::launch {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Pair {
  Pair() {
    std::array<int, 2> down{}, up{};
    if (pipe2(down.data(), O_CLOEXEC) != 0 || pipe2(up.data(), O_CLOEXEC) != 0) throw_system("pipe");
    raw_up = up[1];
    launcher.emplace(Channel::Side::launcher, Fd{up[0]}, Fd{down[1]});
    agent.emplace(Channel::Side::agent, Fd{down[0]}, Fd{up[1]});
  }
  void print(std::string_view text) const { EXPECT_EQ(write(raw_up, text.data(), text.size()), static_cast<ssize_t>(text.size())); }
  std::optional<Channel> launcher, agent;
  int raw_up = -1;  // borrowed of the agent
};

TEST(AgentChannel, FramesArriveInOrderAfterTheOutputOfLoginScripts) {
  Pair p;
  p.print("Last login: yesterday\ncohort agent?\n");
  p.agent->send(AgentFrame::ended, encode(AgentEnded{3, 9}));
  p.agent->send(AgentFrame::heartbeat);
  p.agent->move();
  p.launcher->move();
  const auto first = p.launcher->next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->type, AgentFrame::ended);
  EXPECT_EQ(decode_ended(first->body).rank, 3);
  EXPECT_EQ(p.launcher->next()->type, AgentFrame::heartbeat);
  EXPECT_FALSE(p.launcher->next());
  EXPECT_TRUE(p.launcher->open());
  p.agent->close();
  p.launcher->move();
  EXPECT_FALSE(p.launcher->open());
}

TEST(AgentChannel, AStreamOfAnythingElseIsRefused) {
  Pair p;
  p.print(std::string(kAgentBanner) + "\xff\xff\xff\xff\x01");
  p.print(std::string(1, '\0'));
  p.launcher->move();
  EXPECT_THROW(p.launcher->next(), Failure);
  Pair q;
  q.print("ssh: no such host");
  q.launcher->move();
  EXPECT_FALSE(q.launcher->next());
  EXPECT_EQ(q.launcher->login_output(), "ssh: no such host");
}

TEST(AgentMessages, SurviveEncodingAndDecoding) {
  AgentStart order;
  order.setting = {.rank = 4, .size = 8, .job = "j", .master_addr = "10.0.0.1", .master_port = 5, .threads = 3, .threads_given = true};
  order.setting.interface = "eth0";
  order.setting.streams = 4;
  order.hosts = {{"a", 0, 4}, {"b", 4, 4}};
  order.host = 1;
  order.path = "/bin/x";
  order.argv = {"x", "two words", ""};
  order.environment = {{"A", "line\nline"}, {"B", ""}};
  order.sigquit_reports = true;
  const AgentStart again = decode_start(encode(order));
  EXPECT_EQ(encode(again), encode(order));
  EXPECT_EQ(again.hosts, order.hosts);
  EXPECT_EQ(again.environment, order.environment);
  EXPECT_EQ(again.setting.master_addr, "10.0.0.1");
  EXPECT_EQ(again.setting.streams, 4);
  order.setting.streams = -1;
  EXPECT_EQ(decode_start(encode(order)).setting.streams, -1);
  AgentInit init{.job = "j", .secret = net::Secret::random(), .first = 2, .addresses = {"1.2.3.4:5"}, .start_timeout = 1.5};
  EXPECT_EQ(encode(decode_init(encode(init))), encode(init));
  order.setting.elastic = "0.5s";
  order.setting.launch = "5f3a9c01d2e4";
  EXPECT_EQ(decode_start(encode(order)).setting.launch, "5f3a9c01d2e4");
  order.preemptible = order.saves = true;
  EXPECT_TRUE(decode_start(encode(order)).elastic() && decode_start(encode(order)).preemptible && decode_start(encode(order)).saves);
  EXPECT_EQ(decode_start_worker(encode(AgentStartWorker{7, 1})).slot, 1);
  EXPECT_THROW(decode_start_worker(encode(AgentStartWorker{-1, 1})), Failure);
  EXPECT_EQ(decode_worker_failed(encode(AgentWorkerFailed{7, "no such file"})).why, "no such file");
  auto cut = encode(order);
  cut.pop_back();
  EXPECT_THROW(decode_start(cut), Failure);
}

// Its last bytes and its end may come together: then there is nothing left to watch.
TEST(AgentProbe, IsCancelledWhenTheLauncherIsGone) {
  AgentInit init;
  init.job = "j";
  init.secret = net::Secret::random();
  init.addresses = {"127.0.0.1:1"};
  init.start_timeout = 60;
  const auto start = Clock::now();
  EXPECT_EQ(probe_launcher(init, -1, [] { return true; }).rendezvous, "");
  int looks = 0;
  EXPECT_EQ(probe_launcher(init, -1, [&] { return ++looks > 3; }).rendezvous, "") << "nor is one that goes meanwhile";
  EXPECT_LT(Clock::now() - start, 20s * slowdown());
}

TEST(AgentCommandLine, NamesNeitherSecretNorVariablesAndIsQuoted) {
  LaunchOptions options;
  options.ssh_port = 2222;
  options.agent = "/opt/it's/cohort";
  const auto words =
      agent_command_line(options, {{"PATH", "/usr/bin:/bin"}, {"COHORT_SSH", "/bin/echo -4  -q"}, {"PRIVATE", "x"}}, "me@h2");
  EXPECT_THAT(words, ElementsAre("/bin/echo", "-4", "-q", "-p", "2222", "me@h2", "exec '/opt/it'\\''s/cohort' agent --stdio"));
  EXPECT_THAT(agent_command_line(options, {}, "localhost"), Contains("--stdio"));
}

TEST(AgentCommandLine, VariablesOfALoginAreNotForwarded) {
  std::vector<std::string> names;
  for (const auto& [name, value] :
       forwarded_environment({{"HOME", "/root"}, {"SSH_AUTH_SOCK", "s"}, {"PATH", "p"}, {"MY_SETTING", "1"}, {"COHORT_TTY", "t"}}))
    names.push_back(name);
  EXPECT_THAT(names, ElementsAre("MY_SETTING", "PATH"));
}

TEST(Placement, HostsGetTheirSharesAndThisHostAloneNeedsNoAgent) {
  const auto placed = [](const std::vector<std::string>& words) {
    LaunchPlan plan;
    plan.options = parse_launch_options(words, {});
    plan.host.cores = {{0}, {1}};
    plan_placement(plan);
    return plan;
  };
  EXPECT_THAT(placed({"-H", "a:2,b:2", "-n", "3", "p"}).hosts, ElementsAre(group::HostShare{"a", 0, 2}, group::HostShare{"b", 2, 1}));
  EXPECT_EQ(placed({"-H", "localhost:4", "p"}).ranks, 4);
  EXPECT_TRUE(placed({"-H", "localhost:4", "p"}).hosts.empty());
  EXPECT_EQ(placed({"-H", "localhost:4", "-n", "2", "p"}).ranks, 2);
  EXPECT_EQ(placed({"-n", "auto", "p"}).ranks, 2);
  EXPECT_THROW(placed({"-H", "a:2", "-n", "auto", "p"}), Failure);
  EXPECT_THROW(placed({"--hostfile", "/nowhere/at/all", "p"}), Failure);
}

TEST(Placement, ElasticJobsTakeSlotsWithinTheirLimitsAndKeepTheRest) {
  const auto placed = [](const std::vector<std::string>& words) {
    LaunchPlan plan;
    plan.options = parse_launch_options(words, {});
    plan_placement(plan);
    return plan;
  };
  EXPECT_EQ(placed({"-H", "a:2,b:2", "--min-n", "2", "p"}).ranks, 4);
  EXPECT_EQ(placed({"-H", "a:2,b:2", "--min-n", "2", "--max-n", "3", "p"}).ranks, 3);
  const LaunchPlan few = placed({"-H", "a:2,b:2", "-n", "2", "--min-n", "1", "--max-n", "4", "p"});
  EXPECT_THAT(few.hosts, ElementsAre(group::HostShare{"a", 0, 2}));
  EXPECT_THAT(few.pool, ElementsAre(group::HostSlots{"a", 2}, group::HostSlots{"b", 2}));
  EXPECT_THROW(placed({"-H", "a:2,b:2", "--min-n", "5", "p"}), Failure);
  EXPECT_TRUE(placed({"-H", "localhost:4", "--min-n", "2", "p"}).hosts.empty());
  const LaunchPlan early = placed({"--host-discovery-script", "echo localhost:1", "--min-n", "2", "--max-n", "4", "p"});
  EXPECT_EQ(early.ranks, 2);  // one of them where a host comes later
  EXPECT_THAT(early.hosts, ElementsAre(group::HostShare{"localhost", 0, 1}));
}

TEST(Placement, SlurmTellsWhichNodeThisIs) {
  LaunchOptions o;
  const group::Environment env{{"SLURM_STEP_ID", "1"}, {"SLURM_JOB_ID", "12"}, {"SLURM_NODEID", "2"}, {"SLURM_STEP_NODELIST", "n[07-09]"}};
  read_slurm_nodes(o, env);
  EXPECT_EQ(o.nodes, 3);
  EXPECT_EQ(o.node, 2);
  EXPECT_EQ(o.master_addr, "n07");
  EXPECT_EQ(o.job, "slurm-12.1");
  EXPECT_EQ(o.master_port, 20024);
  LaunchOptions outside;
  read_slurm_nodes(outside, {{"SLURM_JOB_ID", "12"}, {"SLURM_NODEID", "2"}});
  EXPECT_EQ(outside.nodes, 1);
}

TEST(CrossRank, CountsHostsThatHaveTheSameLocalRank) {
  const std::vector<int> hosts{2, 1, 3};
  EXPECT_EQ(cross_rank(hosts, 2, 0).rank, 2);
  EXPECT_EQ(cross_rank(hosts, 2, 0).size, 3);
  EXPECT_EQ(cross_rank(hosts, 2, 1).rank, 1);
  EXPECT_EQ(cross_rank(hosts, 2, 1).size, 2);
  EXPECT_EQ(cross_rank(hosts, 2, 2).rank, 0);
  EXPECT_EQ(cross_rank(hosts, 2, 2).size, 1);
}

}  // namespace
}  // namespace cohort::launch
