// Whole runs of ranks as threads whose replicas drift, or that send gradients by a codec: what a resumed run begins with, and when a run
// has diverged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <mutex>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/collective/ranks.h"
#include "cohort/engine/residuals.h"
#include "cohort/nn/own_dataset.h"
#include "cohort/nn/own_model.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::drifting_run_test {
namespace {

using testing::HasSubstr;
using Values = std::map<std::string, std::vector<float>>;

constexpr std::size_t kSamples = 40, kNone = kSamples;

struct Lines {
  std::size_t bad = kNone;  // a sample of nan; kNone: none
  std::size_t size() const { return kSamples; }
  std::pair<at::Tensor, at::Tensor> get(std::size_t i) const {
    const at::Tensor x = torch::cos(torch::arange(1, 5).to(torch::kFloat) * static_cast<double>(i));
    return {i == bad ? x * std::numeric_limits<float>::quiet_NaN() : x, x.sum().reshape({1})};
  }
};

ModelAndData own(std::size_t bad, int outputs) {
  torch::manual_seed(1);
  return {.model = nn::model_of(torch::nn::Linear(4, outputs)),
          .train = nn::dataset_of(Lines{bad}),
          .test = {},
          .objective = {.loss =
                            [](const at::Tensor& out, const at::Tensor& y) {
                              return nn::Loss{(out - y).square().sum(), out.size(0)};
                            },
                        .metrics = {}}};
}

struct DriftingRun : testing::Test {
  TempDir dir;
  TrainConfig config;
  int outputs = 1;                            // of the model
  std::vector<engine::Residuals> residuals;   // of every rank, when the last run had ended
  std::vector<std::vector<at::Tensor>> seen;  // by rank: the parameters that after_step() found, step after step

  DriftingRun() {
    config.data.batch = 2;
    config.epochs = 0;
    config.steps = 5;
    config.optimizer = "sgd(lr=0.05)";
    config.optim.schedule = "constant";
    config.check_replicas = 0;
    config.observe.tensorboard = config.observe.report = false;
    config.threads = 1;
    config.out = dir.file("run");
  }

  std::string run(int ranks, const std::string& sync, std::int64_t steps, std::size_t bad = kNone) {
    at::set_num_threads(1);
    config.sync = sync;
    config.steps = steps;
    std::string failure;
    std::mutex mutex;
    residuals.assign(static_cast<std::size_t>(ranks), {});
    seen.assign(static_cast<std::size_t>(ranks), {});
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    collective::run_ranks(ranks, [&](collective::Communicator& comm) {
      auto mine = [&] {
        const std::lock_guard lock(mutex);  // torch's generator is one for all threads
        return own(bad, outputs);
      }();
      try {
        Trainer trainer(comm, config, 1, ranks, std::move(mine));
        trainer.after_step([&](TrainLoop& loop) {
          for (const auto& [name, p] : loop.model().named_parameters())
            seen[static_cast<std::size_t>(comm.rank().value)].push_back(p.detach().clone());
        });
        trainer.run();
        residuals[static_cast<std::size_t>(comm.rank().value)] = engine::capture_residuals(trainer.loop().engine(), ranks);
      } catch (const Failure& caught) {
        const std::lock_guard lock(mutex);
        failure = caught.what();
      }
    });
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    return failure;
  }

  Values model() const {
    const checkpoint::Contents contents(checkpoint::open_checkpoint(config.out));
    Values all;
    for (const auto& stored : contents.tensors()) {
      if (stored.group != "model") continue;
      auto& values = all[stored.name];
      values.resize(stored.elements());
      contents.read(stored, 0, stored.elements(), std::as_writable_bytes(std::span(values)));
    }
    return all;
  }
};

void expect_near(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, values] : expected)
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(found.at(name)[i], values[i], 1e-6) << what << " " << name << " " << i;
}

// Nothing moves at a rate of 0, so the model of the job after one more step is the one that was resumed from.
TEST_F(DriftingRun, AnotherStrategyAndAnotherNumberOfRanksBeginWithTheModelOfTheJob) {
  for (const char* first : {"all_reduce", "local_sgd(h=4)", "diloco(h=4)"})
    for (const char* then : {"easgd(h=3)", "diloco(h=100)", "local_sgd(h=2)", "dpsgd(graph=ring)"})
      for (const int ranks : {2, 3}) {
        const std::string what = fmt::format("{} on 2 ranks, then {} on {}", first, then, ranks);
        config.out = dir.file(what);
        config.optimizer = "sgd(lr=0.05)";
        ASSERT_EQ(run(2, first, 5), "") << what;
        const Values before = model();
        config.optimizer = "sgd(lr=0)";
        ASSERT_EQ(run(ranks, then, 6), "") << what;
        expect_near(model(), before, what);
      }
}

TEST_F(DriftingRun, AfterAStepItsUpdateIsThereAlsoWhereParametersTravelBesideTheNextForward) {
  std::vector<std::vector<std::vector<at::Tensor>>> of;
  for (const auto publish : {engine::PublishWhen::wait, engine::PublishWhen::beside}) {
    config.engine.publish = publish;
    config.out = dir.file(std::to_string(of.size()));
    ASSERT_EQ(run(3, "zero(stage=1)", 8), "");
    of.push_back(seen);
  }
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_EQ(of[0][r].size(), 2 * 8U);
    for (std::size_t i = 0; i < of[0][r].size(); ++i) EXPECT_TRUE(at::equal(of[1][r][i], of[0][r][i])) << "rank " << r << ", " << i;
  }
}

TEST_F(DriftingRun, OneLossThatIsNotFiniteIsNoDivergence) {
  config.max_skipped_steps = 3;
  EXPECT_EQ(run(2, "diloco(h=4)", 12, 7), "");
  config.out = dir.file("all of them");
  config.optimizer = "sgd(lr=1e30)";
  EXPECT_THAT(run(2, "diloco(h=4)", 40), HasSubstr("training has diverged"));
}

// Per parameter, what would still be added to the mean gradient.
std::map<std::string, std::vector<double>> owed(const std::vector<engine::Residuals>& all) {
  std::map<std::string, std::vector<double>> total;
  for (const auto& one : all)
    for (const auto& [name, values] : one.sent) {
      total[name].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) total[name][i] += values[i] / static_cast<double>(all.size());
    }
  for (const auto& one : all)
    for (const auto& [name, part] : one.sums)
      for (std::size_t i = 0; i < part.values.size(); ++i) total[name][part.first + i] += part.values[i];
  return total;
}

TEST_F(DriftingRun, WhatCodecsKeptIsInACheckpointForAnyNumberOfRanks) {
  for (const char* codec : {"topk(ratio=0.3)", "int8", "powersgd(rank=1, min_rate=1)"}) {
    config.codec = codec;
    config.out = dir.file(codec);
    outputs = std::string_view(codec).starts_with("powersgd") ? 6 : 1;  // smaller matrices it sends as they are
    ASSERT_EQ(run(3, "all_reduce(op=average)", 5), "");
    const auto before = residuals;
    for (const int ranks : {3, 2, 4}) {
      ASSERT_EQ(run(ranks, "all_reduce(op=average)", 5), "") << "nothing is left to do: it is loaded";
      const auto expected = owed(before), found = owed(residuals);
      double most = 0;
      for (const auto& [name, values] : expected)
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(found.at(name)[i], values[i], 1e-6) << codec << " on " << ranks << ": " << name;
          most = std::max(most, std::abs(values[i]));
        }
      EXPECT_GT(most, 1e-5) << "nothing was kept: nothing is tested";
      EXPECT_EQ(residuals[0].weight, before[0].weight);
      for (const auto& one : residuals) EXPECT_EQ(one.memory, before[0].memory) << codec << " on " << ranks;
    }
  }
}

}  // namespace
}  // namespace cohort::train::drifting_run_test
