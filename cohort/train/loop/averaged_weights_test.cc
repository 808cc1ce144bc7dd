// Averages of the weights (optimizer: ema, swa): evaluation and prediction use them, training and checkpoints do not.
#include "cohort/train/loop/averaged_weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cohort/base/file.h"
#include "cohort/collective/ranks.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::averaged_weights_test {
namespace {

constexpr const char* kTest = "synthetic(shape=1x3x4, classes=3, samples=40, split=test)";

struct Ended {
  double tested = 0;                  // the loss of the last evaluation
  std::vector<at::Tensor> weights{};  // behind it
};

Ended train(const std::string& optimizer, const std::string& sync, const std::string& folder) {
  TrainConfig config;
  config.model = "mlp(in=12, hidden=9, out=3)";
  config.data.train = "synthetic(shape=1x3x4, classes=3, samples=64)";
  config.data.test = kTest;
  config.data.batch = 8;
  config.epochs = 2;
  config.optimizer = optimizer;
  config.sync = sync;
  config.optim.schedule = "constant";
  config.observe.tensorboard = config.observe.report = false;
  config.threads = 1;
  config.out = folder;
  Ended ended;
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    Trainer trainer(comm, config, 2, 2);
    trainer.run();
    const Evaluation tested = trainer.loop().evaluate();
    trainer.loop().engine().make_whole();
    if (comm.rank().value != 0) return;
    ended.tested = tested.loss;
    for (const auto& [name, p] : trainer.loop().model().named_parameters()) ended.weights.push_back(p.detach().clone());
  });
  return ended;
}

class Averaged : public testing::Test {
 protected:
  Averaged() { at::set_num_threads(1), testing::internal::CaptureStdout(); }
  ~Averaged() override { testing::internal::GetCapturedStdout(); }
  const TempDir dir;
};

TEST_F(Averaged, EvaluationLeavesTrainingAsItWasAtEveryStage) {
  const Ended plain = train("sgd(lr=0.3)", "all_reduce(op=sum)", dir.file("plain"));
  const Ended last = train("ema(of=sgd(lr=0.3), decay=0.95, evaluate=last)", "all_reduce(op=sum)", dir.file("last"));
  const Ended reference = train("ema(of=sgd(lr=0.3), decay=0.95)", "all_reduce(op=sum)", dir.file("0"));
  EXPECT_EQ(last.tested, plain.tested);
  EXPECT_GT(std::abs(reference.tested - plain.tested), 1e-4) << "the average is another model";
  for (std::size_t i = 0; i < plain.weights.size(); ++i) EXPECT_TRUE(at::equal(reference.weights[i], plain.weights[i])) << i;
  for (const int stage : {1, 2, 3}) {
    const Ended sharded =
        train("ema(of=sgd(lr=0.3), decay=0.95)", fmt::format("zero(stage={}, op=sum)", stage), dir.file(fmt::to_string(stage)));
    EXPECT_EQ(sharded.tested, reference.tested) << stage;
    for (std::size_t i = 0; i < plain.weights.size(); ++i) EXPECT_TRUE(at::equal(sharded.weights[i], plain.weights[i])) << stage << i;
  }
}

TEST_F(Averaged, PredictionUsesWhatWasEvaluated) {
  int runs = 0;
  for (const char* optimizer : {"swa(of=sgd(lr=0.3), start=4)", "swa(of=sgd(lr=0.3), start=4, evaluate=last)", "ema(of=adam, decay=0.9)"})
    for (const char* sync : {"all_reduce(op=sum)", "zero(stage=2, op=sum)"}) {
      const std::string folder = dir.file(fmt::to_string(runs++));
      const Ended ended = train(optimizer, sync, folder);
      EXPECT_NEAR(Predictor(folder).score(kTest, 0).loss, ended.tested, 1e-6) << optimizer << sync;
    }
}

}  // namespace
}  // namespace cohort::train::averaged_weights_test
