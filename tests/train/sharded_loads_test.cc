// Sharded goes on from a checkpoint of Trainer as Trainer does.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "cohort/base/file.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/sharded.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/nn/zoo.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr int kSamples = 12;
constexpr const char* kModel = "mlp(in=4, hidden=8, out=2)";
constexpr const char* kAdam = "adam(lr=0.05)";

float feature(int sample, int column) { return static_cast<float>((sample * 7 + column * 3) % 11) / 8; }  // exact in decimal

struct TrainerCheckpoint : testing::Test {
  TempDir dir;
  TrainConfig config;

  TrainerCheckpoint() {
    std::string text;
    for (int i = 0; i < kSamples; ++i)
      text += fmt::format("{},{},{},{},{}\n", i % 2, feature(i, 0), feature(i, 1), feature(i, 2), feature(i, 3));
    write_file_atomically(dir.file("train.csv"), text);
    config.model = kModel;
    config.data.train = fmt::format("csv(file={}, label=0, header=no)", dir.file("train.csv"));
    config.data.test = config.data.transforms = "";
    config.data.batch = kSamples;  // every step sees all of them
    config.epochs = 0;
    config.optim.schedule = "constant";
    config.observe.tensorboard = config.observe.report = false;
    config.threads = 1;
    config.checkpoint.keep = 10;
    config.out = dir.file("run");
  }

  Tensors run_to(std::int64_t steps, const std::string& optimizer) {
    config.steps = steps;
    config.optimizer = optimizer;
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    const auto comm = collective::open(std::move(alone), {});
    Trainer trainer(*comm, config, 1, 1);
    trainer.run();
    Tensors all;
    for (const auto& [name, p] : trainer.loop().model().named_parameters()) all.push_back(p.detach().clone());
    return all;
  }

  // Of the checkpoint that is the newest now: so many updates, and after `more` of them the parameters of `reference`.
  void expect_sharded(std::int64_t updates, int more, const Tensors& reference) const {
    for (const int ranks : {1, 2})
      for (const int stage : {1, 2})
        collective::run_ranks(ranks, [&](collective::Communicator& comm) {
          nn::Model model = nn::make_model(kModel, 77);
          Sharded zero(comm, model.root(), {.stage = stage, .optimizer = kAdam, .lanes = 0});
          EXPECT_EQ(zero.load(dir.file("copy")), updates);
          for (int step = 0; step < more; ++step) {
            loss_of(model, comm).backward();
            zero.step();
          }
          zero.engine().make_whole();
          const auto parameters = model.named_parameters();
          for (std::size_t i = 0; i < reference.size(); ++i)
            EXPECT_TRUE(at::allclose(parameters[i].second, reference[i], 1e-4, 1e-6))
                << parameters[i].first << ", " << ranks << " ranks, stage " << stage;
        });
  }

  static at::Tensor loss_of(nn::Model& model, const collective::Communicator& comm) {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    for (int i = comm.rank().value; i < kSamples; i += comm.size()) {
      for (int column = 0; column < 4; ++column) x.push_back(feature(i, column));
      y.push_back(i % 2);
    }
    const at::Tensor inputs = torch::tensor(x).view({-1, 4});
    return torch::nn::functional::cross_entropy(model.forward(inputs), torch::tensor(y));
  }

  void keep_copy() const { std::filesystem::copy(config.out + "/checkpoints", dir.file("copy"), std::filesystem::copy_options::recursive); }
};

TEST_F(TrainerCheckpoint, GoesOnInSharded) {
  run_to(4, kAdam);
  keep_copy();
  expect_sharded(4, 3, run_to(7, kAdam));
}

// Adam's bias correction counts the updates of its own state.
TEST_F(TrainerCheckpoint, WhoseOptimizerBeganLaterGoesOnInShardedWithItsCount) {
  run_to(5, "sgd(lr=0.1)");
  config.checkpoint.allow = {kAllowOptimizer};
  run_to(7, kAdam);
  keep_copy();
  expect_sharded(2, 3, run_to(10, kAdam));
}

}  // namespace
}  // namespace cohort::train
