// cohort-worker verify: one rank of one run of `cohort verify`. What it leaves is told in cli/verify_compare.h.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/train/job.h"
#include "cohort/train/loop/keeper.h"
#include "cohort/train/loop/together.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

// Its buffer after the first step is the gradient itself, whatever the strategy keeps of gradients and wherever it keeps it.
constexpr const char* kGradientRule = "sgd(lr=1e-3, momentum=0.9)";

struct Facts {
  std::vector<double> loss, squared;
  std::vector<std::string> names;
};

void save_now(Keeper& keeper) {
  keeper.save();
  keeper.finish();
  if (!keeper.saved()) throw_failure(Kind::system, "what was computed could not be written; see above");
}

Facts perform(Job& job, const TrainConfig& config) {
  Whereabouts where;
  Learner learner(job.comm(), config, 1, job.local_size(), where);
  learner.model().train(false);  // no dropout, no statistics of a rank's own batch: then a batch means the same on any number of ranks
  Keeper keeper(job.comm(), learner, config, "");
  save_now(keeper);
  Facts facts;
  for (std::int64_t i = 0; i < config.steps; ++i) {
    const StepResult result = learner.train_step();
    facts.loss.push_back(result.loss);
    facts.squared.push_back(result.verdict.squared_after);
  }
  save_now(keeper);
  for (const auto& [name, p] : learner.model().named_parameters()) facts.names.push_back(name);
  return facts;
}

int verify(TrainConfig config, const std::string& out, bool float64) {
  torch::set_num_threads(1);
  if (float64) torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kDouble));
  Job job = init();
  try {
    TrainConfig gradients = config;
    gradients.optim.rule = kGradientRule;
    gradients.engine.clip_norm = 0;
    gradients.steps = 1;
    gradients.out = out + "/gradients";
    Facts facts = perform(job, gradients);
    config.out = out + "/update";
    facts = perform(job, config);
    const nlohmann::json said{{"loss", facts.loss}, {"squared", facts.squared}, {"names", facts.names}};
    if (job.rank().value == 0) write_file_atomically(out + "/facts.json", said.dump());
    return 0;
  } catch (const Failure& failure) {
    if (told_elsewhere(failure.error(), job.rank())) return kExitUsage;
    throw;
  }
}

int verify_main(int argc, char** argv) {
  SettingsSource source;
  std::string out;
  int steps = 1;
  bool float64 = false;
  CLI::App app{"one rank of `cohort verify`", "cohort-worker verify"};
  app.add_option("config", source.file);
  app.add_option("--set", source.sets)->expected(1)->take_all();
  app.add_option("--out", out)->required();
  app.add_option("--steps", steps);
  app.add_flag("--float64", float64);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return fmt::print("{}", app.help()), 0;
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}", error.what());
  }
  auto config = read_settings(source);
  config.steps = steps;
  config.epochs = 0;
  return verify(std::move(config), out, float64);
}

}  // namespace

Task verify_task() { return {"verify", "one rank of `cohort verify`", verify_main}; }

}  // namespace cohort::cli::worker
