// cohort-worker verify: one rank of one run of `cohort verify`. What it writes is described in cli/verify_compare.h.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/job/job.h"
#include "cohort/job/run_on_all.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/train/loop/checkpoint_manager.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

// Its buffer after the first step is the gradient itself, whatever the strategy keeps of gradients and wherever it keeps it.
constexpr const char* kGradientRule = "sgd(lr=1e-3, momentum=0.9)";

struct RunFacts {
  std::vector<double> loss, squared;
  std::vector<std::string> names;
};

void save_now(train::CheckpointManager& checkpoints) {
  checkpoints.save();
  checkpoints.finish();
  if (!checkpoints.saved()) throw_failure(Kind::system, "what was computed could not be written; see above");
}

RunFacts perform(Job& job, const TrainConfig& config) {
  train::RankStatus status;
  train::TrainLoop loop(job.comm(), config, 1, job.local_size(), status);
  loop.model().train(false);  // no dropout, no statistics of a rank's own batch: then a batch means the same on any number of ranks
  train::CheckpointManager checkpoints(job.comm(), loop, config, "");
  save_now(checkpoints);
  RunFacts facts;
  for (std::int64_t i = 0; i < config.steps; ++i) {
    const train::StepResult result = loop.train_step();
    facts.loss.push_back(result.loss);
    facts.squared.push_back(result.verdict.squared_after);
  }
  save_now(checkpoints);
  for (const auto& [name, p] : loop.model().named_parameters()) facts.names.push_back(name);
  return facts;
}

int verify(TrainConfig config, const std::string& out, bool float64) {
  torch::set_num_threads(1);
  if (float64) torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kDouble));
  Job job = init();
  try {
    TrainConfig gradients = config;
    gradients.optimizer = kGradientRule;
    gradients.engine.clip_norm = 0;
    gradients.steps = 1;
    gradients.out = out + "/gradients";
    RunFacts facts = perform(job, gradients);
    config.out = out + "/update";
    facts = perform(job, config);
    const nlohmann::json line{{"loss", facts.loss}, {"squared", facts.squared}, {"names", facts.names}};
    if (job.rank().value == 0) write_file_atomically(out + "/facts.json", line.dump());
    return 0;
  } catch (const Failure& failure) {
    if (job::reported_by_another_rank(failure.error(), job.rank())) return launch::kExitUsage;
    throw;
  }
}

int verify_main(int argc, char** argv) {
  train::SettingsSource source;
  std::string out;
  int steps = 1;
  bool float64 = false;
  CLI::App app{"one rank of `cohort verify`", "cohort-worker verify"};
  app.add_option("config", source.file);
  app.add_option("--set", source.sets)->expected(1)->take_all();
  app.add_option("--out", out)->required();
  app.add_option("--steps", steps);
  app.add_flag("--float64", float64);
  if (!parse_command_line(app, argc, argv)) return 0;
  auto config = train::read_settings(source);
  config.steps = steps;
  config.epochs = 0;
  return verify(std::move(config), out, float64);
}

}  // namespace

Task verify_task() { return {"verify", "one rank of `cohort verify`", verify_main}; }

}  // namespace cohort::cli::worker
