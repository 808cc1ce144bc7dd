// A run whose folder another job takes over while it trains ends, on all ranks, and writes nothing there any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/fence.h"
#include "cohort/checkpoint/run_lock.h"
#include "cohort/collective/ranks.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::taken_over_run_test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != ".owner") files[entry.path().string()] = read_file(entry.path().string());
  return files;
}

struct TakenOverRun : testing::Test {
  TempDir dir;
  TrainConfig config;
  std::map<std::string, std::string> before, after;  // the files when the folder was taken, and at the end
  std::vector<Error> errors{2};
  std::string log;

  TakenOverRun() {
    config.model = "mlp(in=784, hidden=8, out=10)";
    config.data.train = "synthetic(samples=80)";
    config.data.test = "synthetic(samples=20, split=test)";
    config.data.batch = 4;
    config.epochs = 3;
    config.checkpoint.every_epochs = 0;
    config.checkpoint.last_try = Seconds{0};
    config.observe.every_steps = 1;
    config.threads = 1;
    config.out = dir.file("run");
  }

  // `taken` is called on rank 0 after this step.
  void run(std::int64_t step, const std::function<void()>& taken) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank().value);
      errors[rank] = failure_of([&] {
        Trainer trainer(comm, config, 2, 2);
        trainer.after_step([&](TrainLoop& loop) {
          if (rank != 0 || loop.step() != step) return;
          taken();
          before = files_in(config.out);
        });
        trainer.run();
      });
    });
    after = files_in(config.out);
    testing::internal::GetCapturedStdout();
    log = testing::internal::GetCapturedStderr();
  }
  void expect_end(const std::string& owner, const std::string& where) {
    EXPECT_EQ(errors[0].kind, Kind::usage);
    EXPECT_THAT(errors[0].what, testing::AllOf(HasSubstr(config.out + " was taken over by " + owner), HasSubstr(where)));
    EXPECT_THAT(errors[1].what, HasSubstr("rank 0, which reports the cause"));
    EXPECT_THAT(before, testing::Contains(testing::Key(config.out + "/metrics.jsonl")));
    EXPECT_EQ(after, before);
  }
};

TEST_F(TakenOverRun, EndsAfterTheStepWithTheNameOfTheJobThatFencedItOff) {
  run(5, [&] { checkpoint::raise_fence(config.out + "/checkpoints", {"other", 0}); });
  expect_end("job other", "it ends after update 6 of 30; what it learned since its beginning is lost");
  EXPECT_THAT(log, Not(HasSubstr("taken over"))) << "it is said once, at the end";
}

TEST_F(TakenOverRun, EndsWithTheNameOfTheProcessThatHasTheFolder) {
  std::optional<checkpoint::RunLock> other;
  run(5, [&] { other.emplace(config.out, checkpoint::this_process("other"), checkpoint::RunLockOptions{.takeover = true}); });
  expect_end("process " + std::to_string(::getpid()) + " on ", "(job other): this run can save nothing there any more");
  EXPECT_TRUE(fs::exists(config.out + "/.owner")) << "it is not given free: it is another's";
}

TEST_F(TakenOverRun, WritesNeitherCheckpointNorReportAfterItsLastStep) {
  run(30, [&] { checkpoint::raise_fence(config.out + "/checkpoints", {"other", 0}); });
  expect_end("job other", "after update 30 of 30");
}

}  // namespace
}  // namespace cohort::train::taken_over_run_test
