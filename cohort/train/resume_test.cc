#include "cohort/train/resume.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"
#include "cohort/data/fingerprint.h"
#include "cohort/optim/optimizer.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kAdamw = "adamw(lr=0.001)";

// As a run saves it: without the remarks.
std::string yaml_of(TrainConfig config) {
  std::string text = Config(config).yaml();
  constexpr std::string_view kRemark = "  # default";
  for (std::size_t at = 0; (at = text.find(kRemark, at)) != text.npos;) text.erase(at, kRemark.size());
  return text;
}
std::string data_of(int samples, const char* content = "4f") {
  return data::to_text({{"number of samples", fmt::format("{}", samples)}, {"content of train.csv", content}});
}

// A checkpoint after 50 samples of epoch 3 (or at its begin), and the run that goes on from it.
struct Resuming : testing::Test {
  TrainConfig before, now;
  checkpoint::Checkpoint from{"runs/a/checkpoints/step-00000020", {}};
  std::string data = data_of(100);

  Resuming() {
    before.optimizer = now.optimizer = kAdamw;
    from.manifest.epoch = 2;
    from.manifest.position = 50;
    from.manifest.texts[kDataText] = data;
  }
  ResumePlan plan() {
    from.manifest.texts["config"] = yaml_of(before);
    from.manifest.texts["optimizer"] = optim::make(before.optimizer)->spec();
    return plan_resume(from, {now, yaml_of(now), data});
  }
  std::string refusal() {
    const Error error = failure_of([&] { plan(); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what,
                AllOf(HasSubstr("cannot resume from runs/a/checkpoints/step-00000020: "), HasSubstr("checkpoint.resume=never")));
    return error.what;
  }
};

TEST_F(Resuming, WithTheSameSettingsSaysNothing) {
  const ResumePlan same = plan();
  EXPECT_THAT(same.changes, IsEmpty());
  EXPECT_EQ(same.state, StateToRead::all);
  EXPECT_FALSE(same.restart_epoch);
}

TEST_F(Resuming, WhatTheCheckpointSaysIsQuotedInPrintableCharacters) {
  before.model = "mlp(\x1b[2J)";
  EXPECT_THAT(plan().changes, Contains(HasSubstr("model: mlp(\\u001b[2J) -> ")));
  from.manifest.texts[kDataText] = data_of(100, "4\x1b]0;x\a");
  EXPECT_THAT(refusal(), HasSubstr("4\\x1b]0;x\\x07 in the checkpoint"));
}

TEST_F(Resuming, WhatChangesNoResultIsNotListed) {
  now.out = "elsewhere";
  now.name = "other";
  now.threads = now.data.threads = 2;
  now.observe.every_steps = 7;
  now.observe.report = false;
  now.checkpoint.every_steps = 3;
  now.checkpoint.allow = {kAllowData};
  now.engine.lanes = 1;
  EXPECT_THAT(plan().changes, IsEmpty());
}

TEST_F(Resuming, WhatChangesResultsIsListedWithBothValues) {
  now.optimizer = "adamw(lr=0.01)";
  now.optim.schedule = "constant";
  now.data.batch = 32;
  now.epochs = 9;
  now.optim.frozen = {"fc1.*"};
  const ResumePlan changed = plan();
  EXPECT_THAT(changed.changes, testing::UnorderedElementsAre("optimizer: adamw(lr=0.001) -> adamw(lr=0.01)",
                                                             HasSubstr("optim.schedule: cosine(warmup=0.05) -> constant: "),
                                                             HasSubstr("data.batch: 64 -> 32: "), HasSubstr("epochs: 5 -> 9: "),
                                                             "optim.frozen: [] -> [\"fc1.*\"]"));
  EXPECT_EQ(changed.state, StateToRead::all);
}

TEST_F(Resuming, ASettingThatTheCheckpointsVersionDidNotHaveWasItsDefault) {
  from.manifest.texts["config"] = "optimizer: \"adamw(lr=0.001)\"\nseed: 1\n";
  from.manifest.texts["optimizer"] = optim::make(kAdamw)->spec();
  now.data.batch = 16;
  EXPECT_THAT(plan_resume(from, {now, yaml_of(now), data}).changes, ElementsAre(HasSubstr("data.batch: 64 -> 16")));
}

TEST_F(Resuming, AnOptimizerWhoseStateDoesNotFitIsRefusedInEitherDirection) {
  for (const auto& [was, is, lost] : {std::tuple{kAdamw, "sgd(lr=0.1)", "exp_avg, exp_avg_sq are dropped"},
                                      std::tuple{"sgd(lr=0.1)", kAdamw, "exp_avg, exp_avg_sq start at zero"},
                                      std::tuple{kAdamw, "sgd(lr=0.1, momentum=0.9)", "momentum_buffer starts at zero"},
                                      std::tuple{"sgd(lr=0.1, momentum=0.9)", "sgd(lr=0.1)", "momentum_buffer is dropped"}}) {
    before.optimizer = was, now.optimizer = is, now.checkpoint.allow = {};
    const std::string line = fmt::format("optimizer: {} -> {}", was, is);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(line), HasSubstr(lost), HasSubstr("checkpoint.allow=optimizer")));
    now.checkpoint.allow = {kAllowOptimizer};
    const ResumePlan allowed = plan();
    EXPECT_THAT(allowed.changes, ElementsAre(AllOf(HasSubstr(line), HasSubstr(lost))));
    EXPECT_EQ(allowed.state, std::string(was).substr(0, 3) == std::string(is).substr(0, 3) ? StateToRead::fitting : StateToRead::none);
  }
  before.optimizer = "adam", now.optimizer = "adamw", now.checkpoint.allow = {};
  EXPECT_EQ(plan().state, StateToRead::all) << "the same state";
}

TEST_F(Resuming, InTheMiddleOfAnEpochAnotherOrderIsRefusedByName) {
  now.seed = 2;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("seed: 1 -> 2: it is in the middle of epoch 3 (50 samples taken)"),
                               HasSubstr("finish the epoch with the old seed"), HasSubstr("checkpoint.allow=restart_epoch")));
  now.data.sampler = "random";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("seed: 1 -> 2"), HasSubstr("data.sampler: partition -> random"))) << "all at once";
  now.checkpoint.allow = {kAllowRestart};
  const ResumePlan anew = plan();
  EXPECT_TRUE(anew.restart_epoch);
  EXPECT_THAT(anew.changes, testing::Each(HasSubstr("epoch 3 begins anew, and 50 of its samples come again")));
}

TEST_F(Resuming, WhereAnEpochBeginsAnotherOrderIsListed) {
  from.manifest.position = 0;
  now.seed = 2;
  now.data.sampler = "random";
  const ResumePlan changed = plan();
  EXPECT_FALSE(changed.restart_epoch);
  EXPECT_THAT(changed.changes, testing::UnorderedElementsAre(HasSubstr("seed: 1 -> 2: from the next epoch on"),
                                                             HasSubstr("data.sampler: partition -> random")));
}

TEST_F(Resuming, AnotherTrainingSetIsRefusedUnlessToldAndThenItsSizeWithinAnEpochToo) {
  data = data_of(120);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("number of samples: 100 in the checkpoint but 120 now"), HasSubstr("checkpoint.allow=data"),
                               Not(HasSubstr("restart_epoch"))));
  now.checkpoint.allow = {kAllowData};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("samples of the training set: 100 -> 120"), HasSubstr("checkpoint.allow=restart_epoch")));
  now.checkpoint.allow = {kAllowData, kAllowRestart};
  EXPECT_TRUE(plan().restart_epoch);
  now.checkpoint.allow = {kAllowData};
  data = data_of(100, "77");
  const ResumePlan changed = plan();
  EXPECT_FALSE(changed.restart_epoch);
  EXPECT_THAT(changed.changes, ElementsAre(HasSubstr("content of train.csv: 4f in the checkpoint but 77 now")));
}

TEST_F(Resuming, TheSameSamplesElsewhereAreTaken) {
  now.data.train = "csv(file=copy.csv)";
  EXPECT_THAT(plan().changes, ElementsAre("data.train: fashion_mnist -> csv(file=copy.csv): the same samples"));
}

TEST_F(Resuming, ACheckpointOfAnEarlierVersionIsComparedByTheNameOfItsSet) {
  from.manifest.texts.erase(kDataText);
  EXPECT_THAT(plan().changes, IsEmpty());
  now.data.train = "cifar10(dir=x)";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("data.train: fashion_mnist -> cifar10(dir=x)"), HasSubstr("checkpoint.allow=data")));
}

}  // namespace
}  // namespace cohort::train
