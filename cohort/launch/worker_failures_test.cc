#include "cohort/launch/worker_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace cohort::launch {
namespace {

using testing::HasSubstr;

constexpr int kExitOne = 1 << 8;  // as waitpid has it

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
  for (const int killed : {SIGKILL, SIGSEGV, SIGTERM}) EXPECT_FALSE(WorkerFailures::is_own(killed)) << killed;
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

TEST(WorkerFailures, DifferentErrorsAndOnesOfTheSameMomentLetOthersStart) {
  WorkerFailures all(3);
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(all.add(failure(worker, 1, 3, "Input/output error"), true), std::nullopt);
  EXPECT_EQ(all.add(failure(3, 2, 4, "another"), true), std::nullopt);
  EXPECT_EQ(all.add(failure(4, 2, 5, "another", 2 << 8), true), std::nullopt) << "another exit status";
  EXPECT_TRUE(all.add(failure(5, 2, 6, "Input/output error"), true)) << "once they were replaced it is the same again";
}

}  // namespace
}  // namespace cohort::launch
