// What a user sees: prefixes, streams, files, exit statuses, causes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/file.h"
#include "support.h"

namespace cohort::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(LaunchProcess, EveryLineHasItsRankAndTheStreamsStayApart) {
  const auto r = cohort_run({"-n", "3", "sh", "-c", "echo out; echo err >&2"});
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre("[0] out", "[1] out", "[2] out"));
  EXPECT_THAT(sorted_lines_of(r.err), ElementsAre("[0] err", "[1] err", "[2] err"));
}

TEST(LaunchProcess, WithoutPrefixTheBytesAreTheProgramsOwn) { EXPECT_EQ(cohort_run({"--no-prefix", "printf", "a\\rb"}).out, "a\rb"); }

TEST(LaunchProcess, LargeOutputIsComplete) {
  const auto r = cohort_run({"-n", "2", "sh", "-c", "seq 1 20000"});
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(lines_of(r.out).size(), 40'000u);
  EXPECT_THAT(r.out, HasSubstr("[1] 20000\n"));
}

TEST(LaunchProcess, TheFirstFailureEndsTheJobAndIsTheLastThingOnScreen) {
  Started job(cohort_run_words({"-n", "3", "sh", "-c", "[ $RANK = 1 ] && echo the reason >&2 && exit 7; sleep 1000"}));
  const auto r = job.wait();
  EXPECT_EQ(r.code, 7);
  EXPECT_LT(r.took, stretched(2s));
  EXPECT_THAT(r.err, EndsWith("    the reason\n"));
  EXPECT_THAT(r.err, HasSubstr("cohort run: rank 1 failed first: exit status 7"));
  EXPECT_TRUE(job.marked_processes().empty());
}

TEST(LaunchProcess, ASignalThatKillsARankIsNamedAndKeptInTheExitStatus) {
  const auto r = cohort_run({"-n", "2", "sh", "-c", "[ $RANK = 0 ] && kill -SEGV $$; sleep 1000"});
  EXPECT_EQ(r.code, 128 + SIGSEGV);
  EXPECT_THAT(r.err, HasSubstr("rank 0 failed first: killed by SIGSEGV"));
}

TEST(LaunchProcess, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  const auto r = cohort_run({"-n", "2", "--grace", "0.2s", "sh", "-c", "trap '' TERM; [ $RANK = 1 ] && exit 3; while :; do sleep 1; done"});
  EXPECT_EQ(r.code, 3);
  EXPECT_LT(r.took, stretched(2s));
}

TEST(LaunchProcess, MissingCommandsAreOneClearLine) {
  const auto missing = cohort_run({"-n", "4", "no-such-program-at-all"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_EQ(lines_of(missing.err).size(), 1u) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr("cannot find 'no-such-program-at-all' in PATH"));
  EXPECT_THAT(cohort_run({"/bin/ech"}).err, HasSubstr("did you mean '/bin/echo'?"));
  const auto file = cohort_run({"/etc/passwd"});
  EXPECT_EQ(file.code, 126);
  EXPECT_THAT(file.err, HasSubstr("not executable"));
}

TEST(LaunchProcess, AScriptWithoutInterpreterIsRefusedOnce) {
  const TempDir folder("launch");
  write_file_atomically(folder.file("a"), "echo hi\n", 0777);
  write_file_atomically(folder.file("b"), "#!/no/such/thing\n", 0777);
  EXPECT_EQ(cohort_run({"-n", "3", folder.file("a")}).code, 126);
  const auto b = cohort_run({"-n", "3", folder.file("b")});
  EXPECT_EQ(b.code, 127);
  EXPECT_EQ(lines_of(b.err).size(), 1u) << b.err;
}

TEST(LaunchProcess, PythonScriptsNeedNoExecutableBit) {
  const TempDir folder("launch");
  write_file_atomically(folder.file("train.py"), "import os, sys\nprint('python', os.environ['RANK'], sys.argv[1])\n");
  const auto r = cohort_run({"--nproc_per_node=2", "--standalone", folder.file("train.py"), "--lr=1"});
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre("[0] python 0 --lr=1", "[1] python 1 --lr=1")) << r.err;
}

TEST(LaunchProcess, RanksGetTheVariablesOfCohortTorchrunAndHorovodrun) {
  const auto r = cohort_run({"-np", "2", "env"});
  for (const char* line :
       {"[1] RANK=1\n", "[1] WORLD_SIZE=2\n", "[1] LOCAL_RANK=1\n", "[1] LOCAL_WORLD_SIZE=2\n", "[1] MASTER_ADDR=127.0.0.1\n",
        "[1] GROUP_RANK=0\n", "[1] HOROVOD_RANK=1\n", "[1] HOROVOD_SIZE=2\n", "[1] HOROVOD_LOCAL_RANK=1\n", "[1] COHORT_RANK=1\n",
        "[1] COHORT_SIZE=2\n", "[1] OMP_NUM_THREADS=", "[1] COHORT_SECRET_FILE=/proc/"})
    EXPECT_THAT(r.out, HasSubstr(line));
}

TEST(LaunchProcess, ChosenThreadsAndVariablesOfTheUserWin) {
  EXPECT_THAT(cohort_run({"env"}, {{"OMP_NUM_THREADS", "7"}}).out, HasSubstr("OMP_NUM_THREADS=7\n"));
  EXPECT_THAT(cohort_run({"--threads", "3", "env"}, {{"OMP_NUM_THREADS", "7"}}).out, HasSubstr("OMP_NUM_THREADS=3\n"));
}

TEST(LaunchProcess, BoundRanksStayOnTheirCores) {
  const auto r = cohort_run({"--bind", "core", "-n", "1", "-v", "grep", "Cpus_allowed_list", "/proc/self/status"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("rank 0 is process"), Not(HasSubstr("cores any"))));
}

TEST(LaunchProcess, OutputFoldersHoldEveryRanksStreams) {
  const TempDir folder("launch");
  const Words program{"sh", "-c", "echo out $RANK; echo err $RANK >&2"};
  Words words{"-n", "2", "--output-filename", folder.file("a")};
  words.insert(words.end(), program.begin(), program.end());
  const auto both = cohort_run(words);
  EXPECT_THAT(both.out, HasSubstr("[1] out 1"));
  EXPECT_EQ(read_file(folder.file("a/rank.1/stdout")), "out 1\n");
  EXPECT_EQ(read_file(folder.file("a/rank.0/stderr")), "err 0\n");

  words = {"-n", "2", "--log-dir", folder.file("b"), "-r", "3", "-t", "0:1"};
  words.insert(words.end(), program.begin(), program.end());
  const auto redirected = cohort_run(words);
  EXPECT_EQ(redirected.out, "[0] out 0\n");
  EXPECT_EQ(redirected.err, "");
  EXPECT_EQ(read_file(folder.file("b/rank.1/stderr")), "err 1\n");
}

TEST(LaunchProcess, RankZeroReadsTheInputAndTheOthersNothing) {
  const auto r = cohort_run({"-n", "2", "sh", "-c", "echo got $(cat)"}, {}, "hello");
  EXPECT_THAT(sorted_lines_of(r.out), ElementsAre("[0] got hello", "[1] got"));
  EXPECT_THAT(cohort_run({"--stdin", "none", "sh", "-c", "echo got $(cat)"}, {}, "hello").out, "[0] got\n");
}

TEST(LaunchProcess, AJobThatTakesTooLongIsEnded) {
  const auto r = cohort_run({"-n", "2", "--timeout", "0.3s", "sleep", "1000"});
  EXPECT_EQ(r.code, 124);
  EXPECT_THAT(r.err, HasSubstr("longer than --timeout 300 ms"));
}

TEST(LaunchProcess, AClosedStdoutEndsTheJob) {
  const auto r = run({"sh", "-c", std::string(COHORT_BINARY) + " run -n 2 yes | head -n 1"});
  EXPECT_THAT(r.out, HasSubstr("] y"));
  EXPECT_LT(r.took, stretched(5s));
}

TEST(LaunchProcess, HelpNamesTheMainOptions) {
  const auto r = cohort_run({"--help"});
  EXPECT_EQ(r.code, 0);
  for (const char* word : {"cohort run -n 4", "--output", "--grace", "--bind", "torchrun"}) EXPECT_THAT(r.out, HasSubstr(word));
  EXPECT_THAT(run({COHORT_BINARY, "rum"}).err, HasSubstr("did you mean 'run'?"));
}

}  // namespace
}  // namespace cohort::launch
