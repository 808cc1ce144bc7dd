// Runs whose replicas drift, saved between two rounds and resumed on other numbers of ranks: the one model that the job stands for does
// not change by that, whatever the strategy.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "cohort/base/file.h"
#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/collective/ranks.h"
#include "cohort/sync/strategy_row.h"
#include "cohort/train/loop/checkpoint_manager.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train::other_ranks_run_test {
namespace {

using Model = std::map<std::string, at::Tensor>;

Model parameters_of(TrainLoop& loop) {
  Model all;
  for (const auto& [name, p] : loop.model().named_parameters()) all[name] = p.detach().clone();
  return all;
}

double apart(const Model& a, const Model& b) {
  double most = 0;
  for (const auto& [name, t] : a) most = std::max(most, (t - b.at(name)).abs().max().item<double>());
  return most;
}

// By rank: the one model, and a rank's own, when the run has resumed and when it is saved.
struct Stay {
  std::vector<Model> read, own_read, written, own_written;
};

class OtherRanks : public testing::TestWithParam<const sync::StrategyRow*> {
 protected:
  TempDir dir;
  TrainConfig config;

  OtherRanks() {
    std::string text;
    for (int i = 0; i < 120; ++i) text += fmt::format("{},{},{},{},{}\n", i % 2, 9 * i % 256, 40 + i, 200 - i, i);
    write_file_atomically(dir.file("train.csv"), text);
    config.model = "mlp(in=4, hidden=8, out=2)";
    config.data.train = fmt::format("csv(file={}, shape=1x2x2, classes=2)", dir.file("train.csv"));
    config.data.test = "";
    config.data.batch = 4;
    config.epochs = 0;
    config.steps = 100;
    config.optim.schedule = "constant";
    config.optimizer = "adam(lr=0.01)";
    config.sync = std::string(sync::law_spec(*GetParam()));
    config.threads = 1;
    config.out = dir.file("run");
  }

  // Resumes, makes three steps, the last of them in no round's end where rounds are of two, and saves.
  Stay run_on(int ranks) {
    Stay stay;
    for (auto* all : {&stay.read, &stay.own_read, &stay.written, &stay.own_written}) all->resize(static_cast<std::size_t>(ranks));
    collective::run_ranks(ranks, [&](collective::Communicator& comm) {
      const auto me = static_cast<std::size_t>(comm.rank().value);
      RankStatus status;
      TrainLoop loop(comm, config, 1, ranks, status);
      CheckpointManager checkpoints(comm, loop, config, "settings: all\n");
      const auto note = [&](std::vector<Model>& one, std::vector<Model>& own) {
        loop.engine().visit([](const StateItem&) {});  // behind it nobody mixes more in
        own[me] = parameters_of(loop);
        const engine::Consensus consensus(loop.engine());
        one[me] = parameters_of(loop);
      };
      checkpoints.restore();
      note(stay.read, stay.own_read);
      for (int step = 0; step < 3; ++step) loop.train_step();
      note(stay.written, stay.own_written);
      EXPECT_TRUE(checkpoints.save_last());
    });
    return stay;
  }

  Model saved() const {
    const checkpoint::Contents contents(checkpoint::open_checkpoint(config.out));
    Model all;
    for (const auto& stored : contents.tensors()) {
      if (stored.group != "model") continue;
      all[stored.name] = at::empty(stored.shape);
      contents.read(stored, 0, stored.elements(),
                    {static_cast<std::byte*>(all[stored.name].data_ptr()), stored.elements() * sizeof(float)});
    }
    return all;
  }
};

std::vector<const sync::StrategyRow*> drifting_rows() {
  std::vector<const sync::StrategyRow*> all;
  for (const auto* row : sync::strategies())
    if (sync::make(row->name)->semantics().drifts()) all.push_back(row);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, OtherRanks, testing::ValuesIn(drifting_rows()),
                         [](const auto& given) { return std::string(given.param->name); });

TEST_P(OtherRanks, StandForTheSameModel) {
  constexpr double kRounding = 1e-6;  // of a mean of fp32 values below 1
  Stay before = run_on(4);            // of two some graphs leave the same
  EXPECT_GT(apart(before.own_written[0], before.own_written[1]), 1e-5) << "ranks had drifted";
  for (const int ranks : {3, 4, 4}) {
    EXPECT_EQ(apart(saved(), before.written[0]), 0) << "the file has the model that the job stood for";
    const Stay now = run_on(ranks);
    for (int r = 0; r < ranks; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      EXPECT_LE(apart(now.read[rank], before.written[0]), kRounding) << ranks << " ranks";
      if (before.written.size() == now.read.size())
        EXPECT_EQ(apart(now.own_read[rank], before.own_written[rank]), 0) << "as many ranks: each has its own";
      else
        EXPECT_EQ(apart(now.own_read[rank], before.written[0]), 0) << "all begin with it";
    }
    EXPECT_GT(apart(now.written[0], now.read[0]), 1e-4) << "it trains on";
    before = now;
  }
}

}  // namespace
}  // namespace cohort::train::other_ranks_run_test
