// Whole runs of one rank that resume: with other settings, other data, damaged checkpoints, and after they diverged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/collective/ranks.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/nn/recompute.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::resume_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr int kSamples = 24, kStepsPerEpoch = 6;

struct Outcome {
  RunSummary summary;
  std::string out, log, failure;
  std::int64_t optimizer_start = 0;
  std::vector<at::Tensor> parameters;
};

struct ResumedRun : testing::Test {
  TempDir dir;
  TrainConfig config;

  ResumedRun() {
    write_data(kSamples);
    config.model = "mlp(in=4, hidden=3, out=2)";
    config.data.train = fmt::format("csv(file={}, shape=1x2x2, classes=2)", dir.file("train.csv"));
    config.data.test = "";
    config.data.batch = 4;
    config.epochs = 0;
    config.steps = 4;
    config.optim.schedule = "constant";
    config.optimizer = "adamw(lr=0.01)";
    config.check_replicas = 0;
    config.observe.tensorboard = config.observe.report = false;
    config.threads = 1;
    config.out = dir.file("run");
  }

  void write_data(int samples, int first_label = 0) const {
    std::string text;
    for (int i = 0; i < samples; ++i) text += fmt::format("{},{},{},{},{}\n", (i + first_label) % 2, 9 * i % 256, 40, 200 - i, i);
    write_file_atomically(dir.file("train.csv"), text);
  }

  Outcome run(const std::function<void(TrainLoop&)>& after_step = {}) const {
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    const auto comm = collective::open(std::move(alone), {});
    Outcome outcome;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    try {
      Trainer trainer(*comm, config, 1, 1);
      if (after_step) trainer.after_step(after_step);
      outcome.summary = trainer.run();
      outcome.optimizer_start = trainer.loop().optimizer_start();
      for (const auto& [name, p] : trainer.loop().model().named_parameters()) outcome.parameters.push_back(p.detach().clone());
    } catch (const Failure& failure) {
      outcome.failure = failure.what();
    }
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.log = testing::internal::GetCapturedStderr();
    return outcome;
  }
  Outcome run_on(std::int64_t steps) {
    config.steps = steps;
    return run();
  }
  std::string checkpoint(std::int64_t step) const { return fmt::format("{}/checkpoints/step-{:08}", config.out, step); }
  // A checkpoint like that of this step, whole, whose first parameter has a nan, at a later step.
  void save_diverged(std::int64_t like, std::int64_t step) const {
    auto manifest = checkpoint::read_manifest(checkpoint(like), like);
    std::vector<std::vector<std::byte>> memory;
    std::vector<checkpoint::TensorFile> files;
    for (const auto& file : manifest.files) {
      const checkpoint::SafetensorsFile stored(checkpoint(like) + "/" + file.name);
      auto& copy = files.emplace_back(checkpoint::TensorFile{file.name, {}, {}});
      for (const auto& tensor : stored.tensors()) {
        const auto bytes = stored.read(tensor.name);
        memory.emplace_back(bytes.begin(), bytes.end());
        copy.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, memory.back()});
      }
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (auto& file : files)
      if (file.name == "model.safetensors") std::memcpy(const_cast<std::byte*>(file.tensors.front().data.data()), &nan, sizeof nan);
    manifest.step = step;
    manifest.files.clear();
    checkpoint::Store(config.out + "/checkpoints", {.keep = 10}).save(manifest, files);
  }
};

TEST(PublicNames, RecomputationStandsBesideTheNamespaceOfCheckpoints) {
  const at::Tensor x = at::full({2}, 3.0).requires_grad_();
  cohort::recompute([](const at::Tensor& in) { return in.square().sum(); }, x).backward();
  EXPECT_TRUE(x.grad().eq(6).all().item<bool>());
  EXPECT_EQ(cohort::checkpoint::step_name(7), "step-00000007");
}

TEST_F(ResumedRun, ListsWhatChangedAndGoesOn) {
  run();
  config.optimizer = "adamw(lr=0.002)";
  config.observe.every_steps = 3;
  const Outcome on = run_on(6);
  EXPECT_EQ(on.failure, "");
  EXPECT_THAT(on.out, HasSubstr("goes on after update 4\nchanged since this checkpoint was made:\n"
                                "  optimizer: adamw(lr=0.01) -> adamw(lr=0.002)\n  steps: 4 -> 6: "));
  EXPECT_THAT(on.out, Not(HasSubstr("observe")));
  EXPECT_THAT(run_on(6).out, Not(HasSubstr("changed since")));
}

TEST_F(ResumedRun, RefusesAnotherOptimizerUntilItIsToldAndThenItsStateStartsAnew) {
  run();
  for (const char* other : {"sgd(lr=0.1)", "sgd(lr=0.1, momentum=0.9)", "rmsprop(lr=0.01)"}) {
    config.optimizer = other;
    EXPECT_THAT(run_on(6).failure, AllOf(HasSubstr(fmt::format("optimizer: adamw(lr=0.01) -> {}: its state does not fit", other)),
                                         HasSubstr("checkpoint.allow=optimizer")));
  }
  config.optimizer = "sgd(lr=0.1, momentum=0.9)";
  config.checkpoint.allow = {kAllowOptimizer};
  const Outcome on = run_on(6);
  EXPECT_EQ(on.failure, "");
  EXPECT_THAT(on.out, HasSubstr("exp_avg, exp_avg_sq are dropped, momentum_buffer starts at zero"));
  EXPECT_EQ(on.optimizer_start, 4) << "its count of updates begins anew";
  config.checkpoint.allow = {};
  EXPECT_EQ(run_on(8).optimizer_start, 4) << "and is kept by the checkpoint";
  config.optimizer = "adamw(lr=0.01)";
  EXPECT_THAT(run_on(9).failure, HasSubstr("exp_avg, exp_avg_sq start at zero")) << "the other way too";
}

// Adam's first update moves every element by the learning rate, whatever the gradient: only if state and count both begin anew.
TEST_F(ResumedRun, AFreshAdamCorrectsItsBiasFromItsOwnFirstUpdateOn) {
  config.optimizer = "sgd(lr=0.001)";
  const Outcome before = run();
  config.optimizer = "adam(lr=0.25)";
  config.checkpoint.allow = {kAllowOptimizer};
  const Outcome after = run_on(5);
  ASSERT_EQ(after.failure, "");
  double largest = 0;
  for (std::size_t i = 0; i < before.parameters.size(); ++i)
    largest = std::max(largest, (after.parameters[i] - before.parameters[i]).abs().max().item<double>());
  EXPECT_NEAR(largest, 0.25, 1e-3);
}

TEST_F(ResumedRun, RefusesAnotherArchitectureNamingTheTensorThatDiffers) {
  run();
  for (const auto& [other, difference] :
       {std::pair{"mlp(in=4, hidden=3x3, out=2)", "it has no fc2.weight"},
        std::pair{"mlp(in=4, hidden=5, out=2)", "its fc1.weight is of [3, 4], this run's of [5, 4]"}, std::pair{"softmax", ""}}) {
    if (*difference == 0) continue;
    config.model = other;
    EXPECT_THAT(run_on(6).failure, AllOf(HasSubstr("made with model 'mlp(in=4, hidden=3, out=2)'"), HasSubstr(difference)));
  }
  fs::remove_all(config.out);
  config.model = "mlp(in=4, hidden=3x3, out=2)";
  run_on(4);
  config.model = "mlp(in=4, hidden=3, out=2)";
  EXPECT_THAT(run_on(6).failure, HasSubstr("this run's has no fc2."));
}

TEST_F(ResumedRun, RefusesATrainingSetThatGrewOrWasRelabelledUntilItIsTold) {
  run();
  write_data(kSamples + 4);
  EXPECT_THAT(run_on(8).failure, AllOf(HasSubstr("another training set: number of samples: 24 in the checkpoint but 28 now"),
                                       HasSubstr("train.csv"), HasSubstr("checkpoint.allow=data")));
  write_data(kSamples, 1);
  EXPECT_THAT(run_on(8).failure, HasSubstr("labels of " + dir.file("train.csv")));
  write_data(kSamples);
  EXPECT_EQ(run_on(8).failure, "");
  write_data(kSamples + 4);
  config.checkpoint.allow = {kAllowData};
  EXPECT_THAT(run_on(12).failure, HasSubstr("samples of the training set: 24 -> 28: it is in the middle of epoch 2"));
  config.checkpoint.allow = {kAllowData, kAllowRestart};
  EXPECT_THAT(run_on(12).out, HasSubstr("24 in the checkpoint but 28 now"));
}

TEST_F(ResumedRun, WithAnotherSeedWithinAnEpochIsRefusedAndToldToBeginsTheEpochAgain) {
  config.steps = 0;
  config.epochs = 2;
  config.checkpoint.every_steps = 4;
  config.checkpoint.every_epochs = 0;
  run();
  fs::remove_all(checkpoint(12));
  fs::remove_all(checkpoint(8));
  config.seed = 7;
  EXPECT_THAT(run().failure, HasSubstr("seed: 1 -> 7: it is in the middle of epoch 1 (16 samples taken)"));
  config.checkpoint.allow = {kAllowRestart};
  const Outcome anew = run();
  EXPECT_EQ(anew.failure, "");
  EXPECT_EQ(anew.summary.steps, 4 + 2 * kStepsPerEpoch);
  EXPECT_THAT(anew.out, HasSubstr("epoch 1 begins anew, and 16 of its samples come again"));
}

TEST_F(ResumedRun, StopsWhereEveryCheckpointIsDamagedAndSaysHowToBeginAnew) {
  config.checkpoint.every_steps = 2;
  run();
  for (const std::int64_t step : {2, 4}) fs::resize_file(checkpoint(step) + "/model.safetensors", 100);
  for (const char* resume : {"auto", "must"}) {
    config.checkpoint.resume = resume;
    EXPECT_THAT(
        run_on(6).failure,
        AllOf(HasSubstr("none of the checkpoints in " + config.out + "/checkpoints can be used (2): step-00000004: "),
              HasSubstr("100 bytes, the manifest says"), HasSubstr("; step-00000002: "), HasSubstr("--set checkpoint.resume=never")));
    EXPECT_TRUE(fs::exists(checkpoint(4)) && fs::exists(checkpoint(2))) << "nothing was replaced";
  }
  config.checkpoint.resume = "never";
  EXPECT_EQ(run_on(6).failure, "");
  EXPECT_TRUE(fs::exists(config.out + "/checkpoints.old/step-00000004"));
}

TEST_F(ResumedRun, ThatMustHaveACheckpointSaysWhereItLooked) {
  config.checkpoint.resume = "must";
  EXPECT_THAT(run().failure,
              AllOf(HasSubstr("there is no checkpoint in " + config.out + "/checkpoints"), HasSubstr("checkpoint.resume=auto")));
}

TEST_F(ResumedRun, NeverTakesACheckpointWhoseParametersAreNotFinite) {
  run();
  save_diverged(4, 9);
  const Outcome on = run_on(6);
  EXPECT_EQ(on.failure, "");
  EXPECT_THAT(on.out, HasSubstr("goes on after update 4\n"));
  EXPECT_THAT(on.log, AllOf(HasSubstr("step-00000009"), HasSubstr("has values that are inf or nan")));
  fs::remove_all(config.out + "/checkpoints");
  config.checkpoint.resume = "never";
  run_on(4);
  save_diverged(4, 9);
  fs::remove_all(checkpoint(4));
  config.checkpoint.resume = "auto";
  EXPECT_THAT(run_on(6).failure, HasSubstr("step-00000009: parameter '"));
}

TEST_F(ResumedRun, FromACheckpointTakenDuringStepsThatWereNotFiniteSaysSo) {
  config.steps = 5;
  run([](TrainLoop& loop) {
    if (loop.step() != 4) return;
    const at::Tensor first = loop.model().named_parameters().front().second;
    first.register_hook([](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::quiet_NaN(); });
  });
  ASSERT_TRUE(fs::exists(checkpoint(5)));
  const Outcome on = run_on(7);
  EXPECT_EQ(on.failure, "");
  EXPECT_THAT(on.log, HasSubstr("the 1 steps before this checkpoint had a loss or gradients that were not finite"));
}

TEST_F(ResumedRun, TakesAnotherOptimizerWhereItIsShardedAsWhereItIsNot) {
  config.data.test = config.data.train;
  const auto losses = [&](const std::string& sync) {
    config.out = dir.file(sync);
    config.sync = sync;
    std::vector<double> found;
    const auto train = [&](std::int64_t steps, const std::string& optimizer) {
      config.steps = steps;
      config.optimizer = optimizer;
      collective::run_ranks(2, [&](collective::Communicator& comm) {
        Trainer trainer(comm, config, 2, 2);
        const double loss = trainer.run().test.loss;
        if (comm.rank().value == 0) found.push_back(loss);
      });
    };
    config.checkpoint.allow = {};
    train(4, "adamw(lr=0.01)");
    EXPECT_THAT(failure_of([&] { train(8, "rmsprop(lr=0.01)"); }).what, HasSubstr("checkpoint.allow=optimizer")) << sync;
    config.checkpoint.allow = {kAllowOptimizer};
    train(8, "rmsprop(lr=0.01)");
    return found;
  };
  const auto whole = losses("all_reduce");
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_GT(std::abs(whole[0] - whole[1]), 1e-4) << "the second part learned something";
  for (const int stage : {1, 2, 3}) EXPECT_EQ(losses(fmt::format("zero(stage={})", stage)), whole) << "stage " << stage;
}

TEST_F(ResumedRun, WritesNoCheckpointOfParametersThatAreNotFinite) {
  config.checkpoint.every_steps = 2;
  config.checkpoint.keep = 10;
  config.max_skipped_steps = 0;
  config.steps = 5;
  const Outcome diverged = run([](TrainLoop& loop) {
    const torch::NoGradGuard no_grad;
    if (loop.step() == 4) loop.model().named_parameters().front().second.detach().fill_(std::numeric_limits<float>::infinity());
  });
  EXPECT_FALSE(diverged.summary.saved);
  EXPECT_THAT(diverged.log, HasSubstr("no checkpoint at step 4: parameter 'fc1.weight' has values that are inf or nan"));
  EXPECT_TRUE(fs::exists(checkpoint(2)));
  for (const std::int64_t step : {4, 5}) EXPECT_FALSE(fs::exists(checkpoint(step))) << step;
  EXPECT_THAT(run_on(5).out, HasSubstr("goes on after update 2\n"));
}

}  // namespace
}  // namespace cohort::train::resume_run_test
