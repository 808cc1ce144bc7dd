// The small pure parts of the launcher: variables, binding, programs, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include "cohort/base/file.h"
#include "cohort/launch/binding.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/failure_report.h"
#include "cohort/launch/job_rendezvous.h"
#include "cohort/launch/program.h"
#include "cohort/launch/rank_environment.h"

namespace cohort::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RankEnvironment, ARankReadsItsRankAndSizeFromItsVariables) {
  RankSetting setting{.rank = 2, .size = 4, .job = "j", .rendezvous = "127.0.0.1:9", .secret_file = "/proc/1/fd/5", .master_port = 77};
  const auto env = rank_environment({{"COHORT_PLACE", "slurm"}, {"RANK", "9"}, {"HOME", "/root"}}, setting);
  const auto place = group::find_rank_info(env);
  EXPECT_EQ(place.source, "cohort");
  EXPECT_EQ(place.rank, Rank{2});
  EXPECT_EQ(place.rendezvous, "127.0.0.1:9");
  EXPECT_EQ(env.at("MASTER_PORT"), "77");
  EXPECT_EQ(env.at("HOME"), "/root");
  auto torch_only = env;
  torch_only["COHORT_PLACE"] = "torchrun";
  EXPECT_EQ(group::find_rank_info(torch_only).rank, Rank{2});
  torch_only["COHORT_PLACE"] = "horovod";
  EXPECT_EQ(group::find_rank_info(torch_only).size, 4);
}

TEST(RankEnvironment, ThreadsOfTheUserStayUnlessTheOptionIsGiven) {
  RankSetting setting{.threads = 3};
  EXPECT_EQ(rank_environment({}, setting).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(rank_environment({{"OMP_NUM_THREADS", "8"}}, setting).at("OMP_NUM_THREADS"), "8");
  setting.threads_given = true;
  EXPECT_EQ(rank_environment({{"OMP_NUM_THREADS", "8"}}, setting).at("OMP_NUM_THREADS"), "3");
}

TEST(RankEnvironment, TheNumberOfALaunchIsItsOwn) {
  const group::Environment outer{{"COHORT_LAUNCH_ID", "of a launcher around this one"}};
  EXPECT_FALSE(rank_environment(outer, {}).contains("COHORT_LAUNCH_ID"));
  const JobRendezvous one({.job = "name"}), another({.job = "name"});
  EXPECT_NE(one.launch(), another.launch());
  EXPECT_EQ(rank_environment(outer, {.launch = one.launch()}).at("COHORT_LAUNCH_ID"), one.launch());
}

// A variable of this process, as it was before.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

TEST(JobRendezvous, TheDecisionsOfAnElasticJobNeedNoDisk) {
  const Variable nowhere("TMPDIR", "/no/such/folder");
  for (const bool supervised : {false, true}) {
    JobRendezvous job({.elastic = elastic::ElasticRules{}, .supervised = supervised});
    EXPECT_NO_THROW(job.open()) << supervised;
    EXPECT_FALSE(job.ending()) << supervised;
    const pid_t coordinator = job.coordinator();
    job.close();
    if (coordinator > 0) waitpid(coordinator, nullptr, 0);
  }
}

TEST(RankEnvironment, StreamsOfTheCommandLineWinOverTheVariable) {
  RankSetting setting{.rank = 0, .size = 1};
  EXPECT_EQ(rank_environment({{"COHORT_STREAMS", "2"}}, setting).at("COHORT_STREAMS"), "2");
  setting.streams = 4;
  EXPECT_EQ(rank_environment({{"COHORT_STREAMS", "2"}}, setting).at("COHORT_STREAMS"), "4");
}

// Two NUMA nodes of two cores with two threads each.
const HostTopology kServer{.cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}}, .nodes = {{0, 1, 4, 5}, {2, 3, 6, 7}}};

TEST(Binding, CoresAreDividedInBlocksAndSharedWhenThereAreTooFew) {
  EXPECT_THAT(plan_binding(kServer, "core", 2), ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(plan_binding(kServer, "core", 3), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(plan_binding(kServer, "core", 8)[1], ElementsAre(0, 4)) << "rank 1 shares with rank 0";
  EXPECT_THAT(plan_binding(kServer, "core", 8)[7], ElementsAre(3, 7));
  EXPECT_THAT(plan_binding(kServer, "core", 5),
              ElementsAre(ElementsAre(0, 4), ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(Binding, AutoBindsRanksToNumaNodesWhereThereAreSeveral) {
  EXPECT_THAT(plan_binding(kServer, "auto", 4)[1], ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(plan_binding(kServer, "auto", 4)[2], ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(plan_binding(kServer, "auto", 1), ElementsAre(ElementsAre()));
  EXPECT_THAT(plan_binding(kServer, "none", 2), ElementsAre(ElementsAre(), ElementsAre()));
  const HostTopology laptop{.cores = {{0}, {1}}, .nodes = {{0, 1}}};
  EXPECT_THAT(plan_binding(laptop, "auto", 2), ElementsAre(ElementsAre(), ElementsAre()));
}

TEST(Binding, ThreadsAreTheCoresDividedByTheRanks) {
  EXPECT_EQ(plan_threads(kServer, 1), 4);
  EXPECT_EQ(plan_threads(kServer, 3), 1);
  EXPECT_EQ(plan_threads(kServer, 9), 1);
  HostTopology limited = kServer;
  limited.quota = 1.5;  // a container that may use one and a half CPUs
  EXPECT_EQ(plan_threads(limited, 1), 2);
}

TEST(Binding, ThisHostHasAtLeastOneCore) {
  const HostTopology host = read_host_topology();
  EXPECT_GE(usable_cores(host), 1);
  EXPECT_FALSE(host.cores.at(0).empty());
}

TEST(Binding, CpuListsAreShort) {
  EXPECT_EQ(list_cpus({3, 1, 2, 8}), "1-3,8");
  EXPECT_EQ(list_cpus({}), "any");
}

Program program_of(std::vector<std::string> words, const group::Environment& env) {
  return find_program({.command = std::move(words)}, env);
}

struct Refused {
  std::string what;
  int code;
};
Refused refusal(std::vector<std::string> words, const group::Environment& env) {
  try {
    program_of(std::move(words), env);
  } catch (const NoProgram& e) {
    return {e.what(), e.exit_code};
  }
  return {"found", 0};
}

TEST(FindProgram, IsFoundInPathOrThroughPython) {
  const TempDir folder("run");
  write_file_atomically(folder.file("python3"), "#!/bin/sh\n", 0755);
  write_file_atomically(folder.file("train.py"), "", 0644);
  chmod(folder.file("python3").c_str(), 0755);
  const group::Environment env{{"PATH", folder.path() + ":/bin"}};
  EXPECT_EQ(program_of({"sh", "-c", "x"}, env).path, "/bin/sh");
  EXPECT_THAT(program_of({folder.file("train.py"), "--lr"}, env).argv,
              ElementsAre(folder.file("python3"), folder.file("train.py"), "--lr"));
  const ProgramRequest module{.command = {"package.train", "x"}, .module = true};
  EXPECT_THAT(find_program(module, env).argv, ElementsAre(folder.file("python3"), "-m", "package.train", "x"));
}

TEST(FindProgram, MissingOnesAreAnsweredWithWhatWasMeant) {
  const TempDir folder("run");
  write_file_atomically(folder.file("train_model"), "", 0644);
  const group::Environment env{{"PATH", "/bin"}};
  const auto typo = refusal({folder.file("trian_model")}, env);
  EXPECT_EQ(typo.code, kExitNotFound);
  EXPECT_THAT(typo.what, HasSubstr("did you mean '" + folder.file("train_model") + "'?"));
  EXPECT_EQ(refusal({folder.file("train_model")}, env).code, kExitNotExecutable);
  EXPECT_EQ(refusal({folder.path()}, env).code, kExitNotExecutable);
  EXPECT_THAT(refusal({"x.py"}, {{"PATH", "/bin"}, {"PYTHON_EXEC", "/no/python"}}).what, HasSubstr("x.py"));
}

TEST(FindProgram, ExamplesAreFoundBesideTheLauncherAndMissingOnesSaidToBe) {
  const TempDir path("path"), examples("examples");
  for (const char* name : {"01_hello", "02_wrap_your_loop"}) write_file_atomically(examples.file(name), "", 0755);
  write_file_atomically(path.file("02_wrap"), "", 0755);
  const group::Environment env{{"PATH", path.path()}};
  const auto found = [&](const std::string& word) { return find_program({.command = {word, "x"}, .folders = {examples.path()}}, env); };
  EXPECT_EQ(found("01_hello").path, examples.file("01_hello"));
  EXPECT_THAT(found("01_hello").argv, ElementsAre("01_hello", "x"));
  write_file_atomically(path.file("01_hello"), "", 0755);
  EXPECT_EQ(found("01_hello").path, path.file("01_hello")) << "PATH comes first";
  const auto missing = [&](const std::string& word) -> std::string {
    try {
      return found(word).path;
    } catch (const NoProgram& e) {
      EXPECT_EQ(e.exit_code, kExitNotFound);
      return e.what();
    }
  };
  EXPECT_EQ(missing("02_warp_your_loop"),
            "cannot find '02_warp_your_loop' in PATH, " + examples.path() + "; did you mean '02_wrap_your_loop'?");
  EXPECT_THAT(missing("02_wra"), HasSubstr("; did you mean '02_wrap' or '02_wrap_your_loop'?"));
  EXPECT_EQ(missing("nothing_like_it"), "cannot find 'nothing_like_it' in PATH, " + examples.path());
}

TEST(FindProgram, TheInterpreterIsTheOneNamedThenThatOfTheInstallation) {
  const TempDir folder("run");
  for (const char* name : {"python3", "asked", "users", "torchruns", "installed"}) write_file_atomically(folder.file(name), "", 0755);
  write_file_atomically(folder.file("train.py"), "", 0644);
  group::Environment env{{"PATH", folder.path()}};
  const auto python = [&](const std::string& asked) {
    return find_program({.command = {folder.file("train.py")}, .python = asked}, env).path;
  };
  EXPECT_EQ(python(""), folder.file("python3"));
  env["COHORT_INSTALLED_PYTHON"] = folder.file("installed");
  EXPECT_EQ(python(""), folder.file("installed"));
  env["PYTHON_EXEC"] = "torchruns";
  EXPECT_EQ(python(""), folder.file("torchruns"));
  env["COHORT_PYTHON"] = folder.file("users");
  EXPECT_EQ(python(""), folder.file("users"));
  EXPECT_EQ(python("asked"), folder.file("asked"));
  try {
    python("/no/python");
    FAIL() << "it was found";
  } catch (const NoProgram& e) {
    EXPECT_THAT(std::string(e.what()), HasSubstr("--python=/no/python is no program"));
  }
}

TEST(FailureReport, StatusesBecomeTextAndExitCodes) {
  EXPECT_EQ(describe_status(3 << 8), "exit status 3");
  EXPECT_EQ(describe_status(SIGKILL), "killed by SIGKILL");
  EXPECT_EQ(exit_code_of(3 << 8), 3);
  EXPECT_EQ(exit_code_of(SIGTERM), 143);
}

TEST(FailureReport, OnlyTheLastLinesAreKeptAndControlBytesAreHarmless) {
  StderrTail tail;
  for (int i = 0; i < 30; ++i) tail.add("line " + std::to_string(i) + "\n");
  tail.add("\033[31mred");
  const auto lines = tail.lines();
  EXPECT_EQ(lines.size(), 11u);
  EXPECT_EQ(lines.front(), "line 20");
  EXPECT_EQ(lines.back().find('\033'), std::string::npos);
  tail.add(std::string(1 << 20, 'x'));
  EXPECT_LT(tail.lines().back().size(), 400u);
}

TEST(FailureReport, TheTextNamesTheCauseAndItsLastLines) {
  const std::string text =
      failure_text({.rank = 2, .pid = 7, .status = SIGSEGV, .after = Seconds{1.5}, .others_stopped = 3, .last_lines = {"boom"}});
  EXPECT_EQ(text,
            "cohort run: rank 2 failed first: killed by SIGSEGV (pid 7, after 1.5 s); the 3 still running were stopped\n"
            "  its last lines on stderr:\n    boom\n");
}

TEST(FailureReport, NamesTheRankOverWhoseLossARankFailed) {
  EXPECT_EQ(blamed_rank({"all_reduce 'x' of 1 i32, sum #2 on rank 3: rank 1 left"}, 3), 1);
  EXPECT_EQ(blamed_rank({"barrier #4 on rank 0: rank 12 died (its control connection ended without a goodbye)", "and more"}, 0), 12);
  EXPECT_EQ(blamed_rank({"all_reduce 'x' #2 on rank 0: tcp: rank 3 at 127.0.0.1:51000 died (closed the connection)"}, 0), 3);
  EXPECT_EQ(blamed_rank({"rank 2 aborted: rank 0 died"}, 1), 2);
  EXPECT_EQ(blamed_rank({"RuntimeError: rank 1 ended the run: epoch 0, step 1: ValueError: no such point: 11"}, 0), 1);
  EXPECT_EQ(blamed_rank({"rank 2 gave up its link to us: bad checksum"}, 1), 2);
  EXPECT_EQ(blamed_rank({"rank 4 left"}, 4), -1) << "of itself";
  EXPECT_EQ(blamed_rank({"frank 4 left", "rank 5 lefty", "rank 99999999999 died"}, 1), -1);
  EXPECT_EQ(blamed_rank({}, 0), -1);
}

TEST(FailureLog, BlamesTheRankOverWhoseLossTheFirstOneFailed) {
  FailureLog log;
  EXPECT_TRUE(log.empty());
  log.add({.rank = 0, .status = 1 << 8, .others_stopped = 2});
  log.add({.rank = 2, .status = 7 << 8});
  const auto lines = [](int rank) { return std::vector<std::string>{rank == 0 ? "barrier #1 on rank 0: rank 2 left" : "the reason"}; };
  const RankFailure cause = log.cause(lines);
  EXPECT_EQ(cause.rank, 2);
  EXPECT_EQ(cause.others_stopped, 2) << "of the first";
  EXPECT_THAT(cause.last_lines, ElementsAre("the reason"));
  const auto circle = [](int rank) { return std::vector<std::string>{rank == 0 ? "rank 2 left" : "rank 0 left"}; };
  EXPECT_EQ(log.cause(circle).rank, 0) << "two that blame each other end the search";
}

}  // namespace
}  // namespace cohort::launch
