#include "cohort/train/loop/run_logger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "cohort/base/file.h"
#include "cohort/net/transport/loopback.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;
using testing::Not;

// A world of one with all that it can write beside training.
struct LoggedRun {
  explicit LoggedRun(const std::string& folder, int port = -1) {
    config.model = "mlp(in=784, hidden=8, out=10)";
    config.data.train = "synthetic(samples=80)";
    config.data.test = "";
    config.data.batch = 16;
    config.observe.trace = true;
    config.observe.prometheus_port = port;
    config.threads = 1;
    config.out = folder;
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    comm = collective::open(std::move(alone), {});
    loop = std::make_unique<TrainLoop>(*comm, config, 1, 1, status);
  }
  // What it says on stderr and on stdout while it begins.
  std::string begin() {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    logger = std::make_unique<RunLogger>(*comm, config, "settings: all\n", *loop);
    return testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
  }
  // An epoch of one step, and the end of the run.
  std::string train(std::int64_t epoch) {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    logger->epoch_starts(epoch, 2, 0, 5);
    logger->step_done(loop->train_step(), loop->step(), 1);
    logger->epoch_ends(loop->step());
    return testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
  }
  RunSummary finish() { return logger->finish({}, *loop); }

  TrainConfig config;
  RankStatus status;
  std::unique_ptr<collective::Communicator> comm;
  std::unique_ptr<TrainLoop> loop;
  std::unique_ptr<RunLogger> logger;
};

std::ptrdiff_t lines_with(const std::string& text, const std::string& words) {
  const std::regex pattern(words);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), pattern), {});
}

TEST(RunLogger, GoesOnWithoutAFolderItCanWriteInto) {
  const TempDir scratch;
  const std::string folder = scratch.file("run");
  write_file_atomically(folder, "a file in place of the folder");
  LoggedRun run(folder);
  std::string said = run.begin();
  said += run.train(0);
  said += run.train(1);
  for (const char* what : {"this rank's trace", "config.yaml", "metrics.jsonl", "TensorBoard's events"})
    EXPECT_EQ(lines_with(said, std::string("warning: .*") + folder + ".*training goes on without " + what), 1) << what << "\n" << said;
  const RunSummary summary = run.finish();
  EXPECT_EQ(summary.steps, 2);
  EXPECT_EQ(summary.report + summary.trace, "") << "neither could be written";
}

TEST(RunLogger, WritesWithTheNextEpochWhatCouldNotBeWrittenBefore) {
  const TempDir scratch;
  const std::string folder = scratch.file("run");
  write_file_atomically(folder, "a file in place of the folder");
  LoggedRun run(folder);
  run.config.observe.trace = false;
  EXPECT_THAT(run.begin(), HasSubstr("tries again at the next epoch"));
  run.train(0);
  ASSERT_TRUE(std::filesystem::remove(folder));
  EXPECT_THAT(run.train(1), HasSubstr("metrics.jsonl can be written again"));
  EXPECT_EQ(read_file(folder + "/config.yaml"), "settings: all\n");
  EXPECT_THAT(read_file(folder + "/metrics.jsonl"), HasSubstr("\"step\":2"));
  EXPECT_FALSE(std::filesystem::is_empty(folder + "/tensorboard"));
  EXPECT_TRUE(std::filesystem::exists(run.finish().report));
}

TEST(RunLogger, StartsTheTraceWithTheNextEpochWhenItCouldNotBefore) {
  const TempDir scratch;
  const std::string folder = scratch.file("run");
  write_file_atomically(folder, "a file in place of the folder");
  LoggedRun run(folder);
  EXPECT_THAT(run.begin(), HasSubstr("training goes on without this rank's trace, and tries again at the next epoch"));
  ASSERT_TRUE(std::filesystem::remove(folder));
  EXPECT_THAT(run.train(0), HasSubstr("this rank's trace can be written again"));
  std::filesystem::remove_all(folder + "/trace");
  EXPECT_TRUE(std::filesystem::exists(run.finish().trace)) << "its folder is made again";
}

TEST(RunLogger, WritesTheReportWhenTheRunEndsAgain) {
  const TempDir scratch;
  LoggedRun run(scratch.file("run"));
  run.config.observe.trace = false;
  run.begin();
  run.train(0);
  const std::string report = scratch.file("run") + "/report.html";
  std::filesystem::create_directories(report + "/in/its/place");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run.finish().report, "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("without report.html, and tries again when the run is started again"));
  std::filesystem::remove_all(report);
  EXPECT_EQ(run.finish().report, report);
}

TEST(RunLogger, EscapesWhatItQuotes) {
  const TempDir scratch;
  LoggedRun run(scratch.file("run"));
  run.config.observe.trace = false;
  run.begin();
  testing::internal::CaptureStdout();
  run.logger->say("changed:\n  model: \x1b[2J\x1b]0;x\a -> mlp");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "changed:\n  model: \\x1b[2J\\x1b]0;x\\x07 -> mlp\n");
}

// No descriptor is free while it lives.
struct NoDescriptors {
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(dup(0)), before.rlim_max};
    close(static_cast<int>(none.rlim_cur));
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

TEST(MetricOutputs, OpenAfterAnEvaluationThePageThatTheyCouldNotOpenBefore) {
  const TempDir scratch;
  LoggedRun run(scratch.file("run"), 0);
  std::unique_ptr<MetricOutputs> outputs;
  testing::internal::CaptureStderr();
  {
    const NoDescriptors none;
    outputs = std::make_unique<MetricOutputs>(run.config, Rank{0}, 0);
  }
  EXPECT_EQ(outputs->url(), "");
  outputs->evaluation({}, 1, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("training goes on without a page for Prometheus, and tries again after the next evaluation"));
  EXPECT_THAT(said, HasSubstr("metrics at " + outputs->url()));
  EXPECT_THAT(outputs->url(), HasSubstr("http://127.0.0.1:"));
}

TEST(RunLogger, WritesThroughNoLinkThatStandsInPlaceOfAFolder) {
  const TempDir scratch, elsewhere;
  const std::string folder = scratch.file("run");
  std::filesystem::create_directory(folder);
  for (const char* name : {"trace", "tensorboard"}) std::filesystem::create_directory_symlink(elsewhere.path(), folder + "/" + name);
  LoggedRun run(folder);
  std::string said = run.begin();
  said += run.train(0);
  for (const char* what : {"trace", "tensorboard"})
    EXPECT_EQ(lines_with(said, std::string("warning: .*/run/") + what + " is a symbolic link, .*training goes on without"), 1) << said;
  EXPECT_TRUE(std::filesystem::exists(run.finish().report));
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
}

TEST(RunLogger, ASecondStartInOneProcessStartsTheTraceAnew) {  // an elastic job after a change of its workers
  const TempDir scratch;
  LoggedRun run(scratch.file("run"));
  EXPECT_THAT(run.begin(), Not(HasSubstr("warning")));
  EXPECT_THAT(run.begin(), Not(HasSubstr("warning")));
  run.train(0);
  EXPECT_TRUE(std::filesystem::exists(run.finish().trace));
}

TEST(RunLogger, TakesAnotherPortWhenTheOneAskedForIsTaken) {
  const TempDir scratch;
  const observe::HttpServer other({});
  LoggedRun run(scratch.file("run"), other.port());
  run.config.observe.trace = false;
  const std::string said = run.begin();
  EXPECT_THAT(said, testing::ContainsRegex("warning: .*127.0.0.1:" + std::to_string(other.port()) +
                                           ".*in use; the metrics are at http://127.0.0.1:[0-9]+/metrics instead"));
  EXPECT_THAT(said, testing::ContainsRegex("\nmetrics at http://127.0.0.1:[0-9]+/metrics\n"));
  EXPECT_EQ(lines_with(said, "127.0.0.1:" + std::to_string(other.port()) + "/"), 0);
}

}  // namespace
}  // namespace cohort::train
