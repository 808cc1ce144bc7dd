// cohort-worker verify: one rank of one run of `cohort verify`. What it writes is described in cli/verify_compare.h.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <functional>
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

// What is added to every entry of every gradient, by step: rules are not linear, so both directions, and where there are more steps also
// in turn, since what a rule remembers of earlier gradients depends on the ratio of theirs.
using Sign = double (*)(std::int64_t step);
std::vector<Sign> shift_patterns(std::int64_t steps) {
  constexpr auto up = +[](std::int64_t) { return 1.0; };
  constexpr auto down = +[](std::int64_t) { return -1.0; };
  constexpr auto even = +[](std::int64_t step) { return step % 2 == 0 ? 1.0 : -1.0; };
  constexpr auto odd = +[](std::int64_t step) { return step % 2 == 0 ? -1.0 : 1.0; };
  if (steps == 1) return {up, down};
  return {up, down, even, odd};
}

// Changes gradients as backward delivers them, before anything else sees them.
using Prepare = std::function<void(train::TrainLoop& loop)>;

Prepare shifted(double by, Sign sign, int micro_batches) {
  return [=](train::TrainLoop& loop) {
    for (auto& [name, p] : loop.model().named_parameters())
      if (p.requires_grad())
        p.register_hook([=, &loop](const at::Tensor& g) { return g + by * sign(loop.step()) * loop.scale().value() / micro_batches; });
  };
}
void plant_error(train::TrainLoop& loop) {
  for (auto& [name, p] : loop.model().named_parameters())
    if (p.requires_grad()) {
      p.register_hook([](const at::Tensor& g) { return 2 * g; });
      return;
    }
}

struct RunFacts {
  std::vector<double> loss, squared;
  std::vector<std::string> names;
};

void save_now(train::CheckpointManager& checkpoints) {
  checkpoints.save();
  checkpoints.finish();
  if (!checkpoints.saved()) throw_failure(Kind::system, "what was computed could not be written; see above");
}

RunFacts perform(Job& job, const TrainConfig& config, const Prepare& prepare = {}) {
  train::RankStatus status;
  train::TrainLoop loop(job.comm(), config, 1, job.local_size(), status);
  loop.model().train(false);  // no dropout, no statistics of a rank's own batch: then a batch means the same on any number of ranks
  train::CheckpointManager checkpoints(job.comm(), loop, config, "");
  save_now(checkpoints);
  if (prepare) prepare(loop);
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

struct VerifyRun {
  std::string out;
  double shift = 0;       // of gradients, beside a reference that was computed before; 0: the run itself
  int planted_rank = -1;  // which computes a wrong gradient
  bool float64 = false;
};

void compute_steps(Job& job, TrainConfig config, const VerifyRun& run) {
  const Prepare prepare = run.planted_rank == job.rank().value ? Prepare(plant_error) : Prepare();
  TrainConfig gradients = config;
  gradients.optimizer = kGradientRule;
  gradients.engine.clip_norm = 0;
  gradients.steps = 1;
  gradients.out = run.out + "/gradients";
  perform(job, gradients, prepare);
  config.out = run.out + "/update";
  const RunFacts facts = perform(job, config, prepare);
  const nlohmann::json line{{"loss", facts.loss}, {"squared", facts.squared}, {"names", facts.names}};
  if (job.rank().value == 0) write_file_atomically(run.out + "/facts.json", line.dump());
}

void compute_shifted(Job& job, TrainConfig config, const VerifyRun& run) {
  auto lines = nlohmann::json::array();
  for (const Sign sign : shift_patterns(config.steps)) {
    config.out = fmt::format("{}/shifted-{}", run.out, lines.size());
    const RunFacts facts = perform(job, config, shifted(run.shift, sign, config.data.accumulate));
    lines.push_back({{"loss", facts.loss}, {"squared", facts.squared}});
  }
  if (job.rank().value == 0) write_file_atomically(run.out + "/shifted.json", lines.dump());
}

int verify(const TrainConfig& config, const VerifyRun& run) {
  torch::set_num_threads(1);
  if (run.float64) torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(torch::kDouble));
  Job job = init();
  try {
    run.shift > 0 ? compute_shifted(job, config, run) : compute_steps(job, config, run);
    return 0;
  } catch (const Failure& failure) {
    if (job::reported_by_another_rank(failure.error(), job.rank())) return launch::kExitUsage;
    throw;
  }
}

int verify_main(int argc, char** argv) {
  train::SettingsSource source;
  VerifyRun run;
  int steps = 1;
  CLI::App app{"one rank of `cohort verify`", "cohort-worker verify"};
  app.add_option("config", source.file);
  app.add_option("--set", source.sets)->expected(1)->take_all();
  app.add_option("--out", run.out)->required();
  app.add_option("--steps", steps);
  app.add_option("--shift", run.shift);
  app.add_option("--plant-error", run.planted_rank);
  app.add_flag("--float64", run.float64);
  if (!parse_command_line(app, argc, argv)) return 0;
  auto config = train::read_settings(source);
  config.steps = steps;
  config.epochs = 0;
  return verify(config, run);
}

}  // namespace

Task verify_task() { return {"verify", "one rank of `cohort verify`", verify_main}; }

}  // namespace cohort::cli::worker
