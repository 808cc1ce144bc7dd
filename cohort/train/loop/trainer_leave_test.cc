#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/file.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

constexpr std::int64_t kStepsPerEpoch = 5, kSteps = 3 * kStepsPerEpoch;

TrainConfig small_run(const std::string& folder) {
  TrainConfig config;
  config.model = "mlp(in=784, hidden=8, out=10)";
  config.data.train = "synthetic(samples=80)";
  config.data.test = "synthetic(samples=20, split=test)";
  config.data.batch = 16;
  config.epochs = 3;
  config.optimizer = "adam(lr=1e-3)";
  config.checkpoint.every_epochs = 0;
  config.observe.tensorboard = config.observe.report = false;
  config.threads = 1;
  config.out = folder;
  return config;
}

struct Ran {
  RunSummary summary;
  std::vector<at::Tensor> parameters;
};

// A world of one; told to leave while step `leave_at` is counted (0: before the first): the vote of the next one says so. -1: never.
Ran run(const std::string& folder, std::int64_t leave_at) {
  std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
  const auto comm = collective::open(std::move(alone), {});
  Trainer trainer(*comm, small_run(folder), 1, 1);
  if (leave_at == 0) trainer.leave("a test");
  trainer.after_step([&](TrainLoop& loop) {
    if (loop.step() == leave_at) trainer.leave("a test");
  });
  Ran ran{trainer.run(), {}};
  for (const auto& [name, parameter] : trainer.loop().model().named_parameters()) ran.parameters.push_back(parameter.detach().clone());
  return ran;
}

TEST(TrainerLeave, EndsAfterTheNextStepWithACheckpointOfItFromWhichTheSameBitsFollow) {
  const TempDir folder;
  const Ran whole = run(folder.path() + "/whole", -1);
  EXPECT_FALSE(whole.summary.left);
  EXPECT_EQ(whole.summary.steps, kSteps);
  for (const std::int64_t leave_at : {std::int64_t{0}, std::int64_t{6}, kStepsPerEpoch - 1, kSteps - 2}) {  // the third ends with an epoch
    const std::string here = fmt::format("{}/{}", folder.path(), leave_at);
    const Ran left = run(here, leave_at);
    EXPECT_TRUE(left.summary.left && left.summary.saved) << leave_at;
    EXPECT_EQ(left.summary.steps, leave_at + 1);
    EXPECT_TRUE(std::filesystem::exists(fmt::format("{}/checkpoints/step-{:08}", here, leave_at + 1)));
    EXPECT_EQ(left.summary.test.samples > 0, leave_at + 1 > kStepsPerEpoch) << "a run that is told to leave evaluates nothing";
    const Ran again = run(here, -1);
    EXPECT_FALSE(again.summary.left);
    EXPECT_EQ(again.summary.steps, kSteps);
    for (std::size_t i = 0; i < whole.parameters.size(); ++i)
      EXPECT_TRUE(at::equal(again.parameters[i], whole.parameters[i])) << "left after step " << leave_at << ", parameter " << i;
  }
}

TEST(TrainerLeave, ARunThatIsOverAnywayEndsAsEver) {
  const TempDir folder;
  for (const std::int64_t leave_at : {kSteps - 1, kSteps})
    EXPECT_FALSE(run(fmt::format("{}/{}", folder.path(), leave_at), leave_at).summary.left);
}

}  // namespace
}  // namespace cohort::train
