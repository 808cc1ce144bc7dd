#include "cohort/launch/worker_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace cohort::launch {
namespace {

using testing::HasSubstr;

constexpr int kExitOne = 1 << 8, kCoreDumped = 0x80;  // as waitpid has them

WorkerFailure failure(int worker, std::uint32_t epoch, int started, const std::string& line, int status = kExitOne) {
  return {.worker = worker,
          .name = "worker " + std::to_string(worker),
          .status = status,
          .epoch = epoch,
          .started = started,
          .last_lines = {"Traceback:", line}};
}

TEST(WorkerFailures, OnlyWhatTheProgramDidItselfIsItsOwnError) {
  EXPECT_TRUE(WorkerFailures::is_own(kExitOne));
  EXPECT_TRUE(WorkerFailures::is_own(SIGABRT));
  for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGSEGV | kCoreDumped})
    EXPECT_TRUE(WorkerFailures::is_own(crash)) << crash;
  for (const int killed : {SIGKILL, SIGTERM, SIGINT, SIGHUP}) EXPECT_FALSE(WorkerFailures::is_own(killed)) << killed;
  EXPECT_TRUE(WorkerFailures::is_own(SIGKILL, true)) << "it needed too much memory";
  EXPECT_FALSE(WorkerFailures::is_own(0));
}

TEST(WorkerFailures, NumbersMakeNoOtherError) {
  EXPECT_EQ(without_numbers("12:01:07.5 pid 4711 at 0x7ffe12ab: row 3, rank 2"), "#:#:#.# pid # at #: row #, rank #");
  EXPECT_NE(without_numbers("no file a"), without_numbers("no file b"));
}

TEST(WorkerFailures, AProgramThatFailsBeforeItsFirstStepHasOneRound) {
  WorkerFailures three(3);
  EXPECT_EQ(three.add(failure(0, 0, 3, "ImportError: a"), false), std::nullopt);
  EXPECT_EQ(three.add(failure(1, 0, 4, "ImportError: b"), false), std::nullopt);
  EXPECT_THAT(three.add(failure(2, 1, 5, "ImportError: c"), false).value_or(""),
              HasSubstr("3 workers failed before the first step was committed"));
  WorkerFailures one(1);
  EXPECT_THAT(one.add(failure(0, 1, 1, "x"), false).value_or(""), HasSubstr("the worker failed before its first step"));
}

TEST(WorkerFailures, AnErrorThatGoesFromWorkerToWorkerEndsTheJobWithTheSecond) {
  WorkerFailures role(3);  // the role of rank 0 goes to a worker that was there before
  EXPECT_EQ(role.add(failure(0, 1, 3, "rank 0: row 17 of a.csv"), true), std::nullopt);
  EXPECT_THAT(role.add(failure(1, 2, 4, "rank 0: row 17 of a.csv"), true).value_or(""), HasSubstr("the same error as worker 0 before it"));
  WorkerFailures place(3);  // a new one was started in its place, and does not get as far as an epoch
  EXPECT_EQ(place.add(failure(2, 4, 3, "No module named x"), true), std::nullopt);
  EXPECT_THAT(place.add(failure(3, 0, 4, "No module named x"), true).value_or(""),
              HasSubstr("worker 3 ended with the same error as worker 2"));
}

WorkerFailure crash(int worker, std::uint32_t epoch, int started, Seconds at, int status = SIGSEGV, bool for_memory = false) {
  WorkerFailure one = failure(worker, epoch, started, "what it wrote last: " + std::string(static_cast<std::size_t>(worker), 'x'), status);
  one.for_memory = for_memory;
  one.at = at;
  return one;
}

TEST(WorkerFailures, ACrashAfterACrashIsTheSameErrorWhateverWasWrittenLast) {
  WorkerFailures role(3);
  EXPECT_EQ(role.add(crash(0, 1, 3, Seconds{50}), true), std::nullopt);
  EXPECT_EQ(role.add(crash(1, 2, 4, Seconds{51}, SIGBUS), true), std::nullopt) << "another signal";
  EXPECT_THAT(role.add(crash(2, 3, 5, Seconds{52}, SIGSEGV | kCoreDumped), true).value_or(""),
              HasSubstr("worker 2 ended as worker 0 did before it (killed by SIGSEGV), and so would the next one"));
  WorkerFailures import(3);
  EXPECT_EQ(import.add(crash(0, 0, 3, Seconds{1}), false), std::nullopt);
  EXPECT_EQ(import.add(crash(1, 0, 3, Seconds{1}), false), std::nullopt);
  EXPECT_THAT(import.add(crash(2, 0, 3, Seconds{1}), false).value_or(""),
              HasSubstr("3 workers failed before the first step was committed"));
}

TEST(WorkerFailures, WantOfMemoryIsTheSameErrorAgainAndAnotherThanAKill) {
  WorkerFailures memory(3);
  EXPECT_EQ(memory.add(crash(0, 1, 3, Seconds{50}, SIGKILL, true), true), std::nullopt);
  EXPECT_THAT(memory.add(crash(3, 2, 4, Seconds{80}, SIGKILL, true), true).value_or(""),
              HasSubstr("worker 3 ended as worker 0 did before it (killed for want of memory)"));
}

TEST(WorkerFailures, CrashesFarApartLetOthersStart) {
  WorkerFailures job(3);
  for (int n = 0; n < 5; ++n)
    EXPECT_EQ(job.add(crash(3 + n, static_cast<std::uint32_t>(n), 3 + n, n * 2 * WorkerFailures::kCascade), true), std::nullopt) << n;
}

TEST(WorkerFailures, DifferentErrorsAndOnesOfTheSameMomentLetOthersStart) {
  WorkerFailures all(3);
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(all.add(failure(worker, 1, 3, "Input/output error"), true), std::nullopt);
  EXPECT_EQ(all.add(failure(3, 2, 4, "another"), true), std::nullopt);
  EXPECT_EQ(all.add(failure(4, 2, 5, "another", 2 << 8), true), std::nullopt) << "another exit status";
  EXPECT_TRUE(all.add(failure(5, 2, 6, "Input/output error"), true)) << "once they were replaced it is the same again";
}

}  // namespace
}  // namespace cohort::launch
