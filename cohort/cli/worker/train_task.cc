// cohort-worker train: one rank of `cohort train`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/terminal_text.h"
#include "cohort/cli/worker/preemption.h"
#include "cohort/cli/worker/sigquit_status.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/collective/cost/calibration_file.h"
#include "cohort/job/run_on_all.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

// Rank 0 says it for all.
int report_end(const RunSummary& summary, bool first) {
  std::fflush(stdout);
  if (summary.saved || !first) return 0;
  fmt::print(stderr, "cohort train: {}\n", terminal_text(train::not_saved_text(summary)));
  return launch::kExitFailure;
}

// A worker of a job that others join and leave while it trains.
int train_elastic(elastic::ElasticWorkerOptions elastic_worker, const TrainConfig& config) {
  train::RankStatus status;
  PreemptionHandler preemption(OnParentExit::exit_soon);  // both before the first thread of the job
  const SigquitStatus sigquit_status(status);
  train::ElasticSettings settings;
  Config(settings.job).read_environment("COHORT_", [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value == nullptr || *value == 0 ? nullptr : value;
  });
  if (!settings.job.log.empty()) set_log_level(settings.job.log);
  if (settings.job.calibration.empty()) settings.job.calibration = collective::usual_calibration_folder();
  settings.threads = settings.job.threads;
  if (const char* folder = std::getenv("COHORT_HISTORY"); folder != nullptr) settings.history = folder;
  train::ElasticTrainer trainer(std::move(elastic_worker), config, std::move(settings), status);
  const ScopedPreemptionCallback callback(preemption, [&](const std::string& signal) { trainer.leave(signal); });
  const std::optional<RunSummary> summary = trainer.run();
  if (!summary || summary->rank != 0) return 0;
  fmt::print("\n{}", train::summary_text(*summary));
  return report_end(*summary, true);
}

int train(const TrainConfig& config) {
  if (auto elastic_worker = job::ElasticJob::from_environment(group::read_environment()))
    return train_elastic(*std::move(elastic_worker), config);
  train::RankStatus status;
  PreemptionHandler preemption(OnParentExit::ignore);  // both before the first thread of the job
  const SigquitStatus sigquit_status(status);
  status.set_phase("in the rendezvous with the other ranks");
  JobOptions options;
  options.backend = config.backend;
  options.deterministic = config.deterministic;
  Job job = init(options);
  try {
    Trainer trainer(job, config, &status);
    const ScopedPreemptionCallback callback(preemption, [&](const std::string& signal) { trainer.leave(signal); });
    const RunSummary summary = trainer.run();
    if (job.rank().value == 0 && !summary.left) fmt::print("\n{}", train::summary_text(summary));
    return report_end(summary, job.rank().value == 0);
  } catch (const Failure& failure) {
    if (job::reported_by_another_rank(failure.error(), job.rank())) return launch::kExitUsage;
    throw;
  }
}

int train_main(int argc, char** argv) {
  block_preemption_signals();
  train::SettingsSource source;
  CLI::App app{"one rank of `cohort train`", "cohort-worker train"};
  app.add_option("config", source.file, "YAML file with settings");
  app.add_option("--set", source.sets, "key=value")->expected(1)->take_all();
  if (!parse_command_line(app, argc, argv)) return 0;
  return train(train::read_settings(source));
}

}  // namespace

Task train_task() { return {"train", "one rank of `cohort train`", train_main}; }

}  // namespace cohort::cli::worker
