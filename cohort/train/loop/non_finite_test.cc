#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cohort/base/file.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TrainConfig diverging_config(const std::string& folder, std::int64_t steps) {
  TrainConfig config;
  config.model = "mlp(in=784, hidden=8, out=10)";
  config.data.train = "synthetic(samples=320)";
  config.data.test = "synthetic(samples=20, split=test)";
  config.data.batch = 16;
  config.epochs = 0;
  config.steps = steps;
  config.optimizer = "sgd(lr=0.01)";
  config.optim.schedule = "constant";
  config.observe.tensorboard = config.observe.report = false;
  config.threads = 1;
  config.out = folder;
  return config;
}

struct Told {
  RunSummary summary;
  std::string out, failure;
  Kind kind = Kind::usage;  // of the failure
  std::int64_t steps = 0, since = 0;
};

// A world of one.
Told run_with(const TrainConfig& config, const std::function<void(TrainLoop&)>& after_step = {}) {
  std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
  const auto comm = collective::open(std::move(alone), {});
  Trainer trainer(*comm, config, 1, 1);
  if (after_step) trainer.after_step(after_step);
  Told told;
  testing::internal::CaptureStdout();
  try {
    told.summary = trainer.run();
  } catch (const Failure& failure) {
    told.failure = failure.what();
    told.kind = failure.kind();
  }
  told.out = testing::internal::GetCapturedStdout();
  told.steps = trainer.loop().step();
  told.since = trainer.loop().non_finite().since();
  return told;
}

// Parameters that are not finite after step `first`, and again what they were after step `last`: the steps between are left out.
std::function<void(TrainLoop&)> spoil(std::int64_t first, std::int64_t last) {
  return [=, kept = std::vector<at::Tensor>()](TrainLoop& loop) mutable {
    const torch::NoGradGuard no_grad;
    std::size_t i = 0;
    for (const auto& [name, parameter] : loop.model().named_parameters()) {
      if (loop.step() == first) {
        kept.push_back(parameter.detach().clone());
        parameter.detach().fill_(kNan);
      }
      if (loop.step() == last) parameter.detach().copy_(kept[i++]);
    }
  };
}

std::string newest_in(const std::string& folder) {
  std::string newest;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) newest = std::max(newest, entry.path().filename().string());
  return newest;
}

StepResult step_of(double loss, bool committed, double scale = 1) {
  StepResult result;
  result.loss = loss;
  result.scale = scale;
  result.verdict.committed = committed;
  result.verdict.stuck = !committed;
  return result;
}

TEST(NonFinite, ALearningRateFarTooHighStopsTheRunWithCauseAndCheckpoint) {
  const TempDir folder;
  TrainConfig config = diverging_config(folder.path(), 100);
  config.optimizer = "sgd(lr=1e38)";
  config.checkpoint.every_steps = 1;
  const Told told = run_with(config);
  EXPECT_EQ(told.kind, Kind::corrupt);
  EXPECT_GT(told.since, 1);
  EXPECT_EQ(told.steps, told.since + config.max_skipped_steps - 1);
  EXPECT_THAT(told.failure, AllOf(HasSubstr("training has diverged: 20 steps in a row"), HasSubstr(fmt::format(", {} to", told.since)),
                                  HasSubstr("learning rate that is too high"), HasSubstr("engine.clip_norm")));
  const std::string newest = newest_in(folder.path() + "/checkpoints");
  ASSERT_THAT(newest, testing::StartsWith("step-"));
  EXPECT_LT(std::stoll(newest.substr(5)), told.since) << "a checkpoint of a run that may have diverged";
  EXPECT_THAT(told.failure, HasSubstr(fmt::format("newest checkpoint is of step {}, in {}/", std::stoll(newest.substr(5)), folder.path())));
}

TEST(NonFinite, GoesOnFromACheckpointAfterWhichAStepWasFinite) {
  for (const int keep : {1, 3}) {
    const TempDir folder;
    TrainConfig config = diverging_config(folder.path(), 4);
    config.checkpoint.keep = keep;
    config.max_skipped_steps = 4;
    EXPECT_EQ(run_with(config).failure, "");
    config.steps = 40;
    config.checkpoint.every_steps = 5;
    const Told told = run_with(config, [](TrainLoop& loop) {  // what the update of step 5 makes is finite, and no loss of it is
      const torch::NoGradGuard no_grad;
      if (loop.step() == 5)
        for (const auto& [name, parameter] : loop.model().named_parameters()) parameter.detach().fill_(1e30);
    });
    EXPECT_EQ(told.since, 6);
    EXPECT_THAT(told.failure, HasSubstr("newest checkpoint is of step 4, in ")) << "keep=" << keep;
    EXPECT_EQ(newest_in(folder.path() + "/checkpoints"), "step-00000004");
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/checkpoints/diverged-00000005"));
    const Told again = run_with(config);
    EXPECT_EQ(again.failure, "");
    EXPECT_THAT(again.out, HasSubstr("goes on after update 4\n"));
  }
}

TEST(NonFinite, TheOnlyCheckpointStaysAndIsNamed) {
  const TempDir folder;
  TrainConfig config = diverging_config(folder.path(), 40);
  config.checkpoint.every_steps = 5;
  config.max_skipped_steps = 4;
  const Told told = run_with(config, [](TrainLoop& loop) {
    const torch::NoGradGuard no_grad;
    if (loop.step() == 5)
      for (const auto& [name, parameter] : loop.model().named_parameters()) parameter.detach().fill_(1e30);
  });
  EXPECT_THAT(told.failure, HasSubstr("newest checkpoint is of step 5, in "));
  EXPECT_EQ(newest_in(folder.path() + "/checkpoints"), "step-00000005");
}

TEST(NonFinite, AShorterRowGoesOnAndIsCountedInsteadOfRepeated) {
  const TempDir folder;
  TrainConfig config = diverging_config(folder.path() + "/on", 15);
  config.max_skipped_steps = 10;
  const Told on = run_with(config, spoil(3, 12));
  EXPECT_EQ(on.failure, "");
  EXPECT_EQ(on.summary.steps, 15);
  EXPECT_EQ(on.summary.skipped, 9);
  EXPECT_THAT(on.out, AllOf(HasSubstr("step 4: a gradient was not finite"), Not(HasSubstr("step 5: ")),
                            HasSubstr("step 7: 4 steps in a row"), HasSubstr("step 11: 8 steps in a row"),
                            HasSubstr("step 13: updates again, after 9 steps in a row were left out, 4 to 12")));
  config.out = folder.path() + "/stops";
  config.max_skipped_steps = 9;
  const Told stops = run_with(config, spoil(3, 12));
  EXPECT_THAT(stops.failure, AllOf(HasSubstr("9 steps in a row (max_skipped_steps), 4 to 12"), HasSubstr("There is no checkpoint")));
  config.out = folder.path() + "/never";
  config.max_skipped_steps = 0;
  EXPECT_EQ(run_with(config, spoil(3, 12)).failure, "");
}

TEST(NonFinite, WhatADynamicLossScaleExplainsIsNotCounted) {
  NonFiniteSteps dynamic(2, true), constant(2, false);
  for (std::int64_t step = 1; step <= 5; ++step) {
    dynamic.add(step_of(1, false, 1024), step);
    constant.add(step_of(1, false, 1024), step);
  }
  EXPECT_EQ(dynamic.in_a_row(), 0);
  EXPECT_TRUE(constant.too_many());
  EXPECT_THAT(constant.text({}, -1), HasSubstr("loss scale 1024 is too large"));
  dynamic.add(step_of(1, false, 1), 6);
  dynamic.add(step_of(kNan, false, 1024), 7);
  EXPECT_TRUE(dynamic.too_many()) << "the loss is taken before it is scaled";
  EXPECT_EQ(dynamic.since(), 6);
  dynamic.add(step_of(1, true), 8);
  EXPECT_EQ(dynamic.in_a_row(), 0);
}

TEST(NonFinite, NoUpdateBeforeItPointsToTheData) {
  NonFiniteSteps steps(1, false);
  steps.add(step_of(kNan, false), 1);
  EXPECT_THAT(steps.text({}, -1), AllOf(HasSubstr("inf or nan in the data"), Not(HasSubstr("learning rate that is too high"))));
}

TEST(CompleteRun, SaysThatNothingIsLeftToDo) {
  const TempDir folder;
  const TrainConfig config = diverging_config(folder.path(), 4);
  EXPECT_THAT(run_with(config).out, Not(HasSubstr("complete")));
  const Told again = run_with(config);
  EXPECT_THAT(again.out, HasSubstr("the run is complete: all 4 updates were made before"));
  EXPECT_THAT(summary_text(again.summary), Not(HasSubstr("samples/s")));
}

}  // namespace
}  // namespace cohort::train
