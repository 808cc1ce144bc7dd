// cohort-worker train: one rank of `cohort train`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/worker/asked.h"
#include "cohort/cli/worker/notices.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/collective/calibrated.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/together.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

int tell_end(const RunSummary& summary) {
  std::fflush(stdout);
  if (!summary.saved) fmt::print(stderr, "cohort train: the run ended, but its last checkpoint could not be written; see above\n");
  return summary.saved ? 0 : kExitFailure;
}

// A worker of a job that others join and leave while it trains.
int train_elastic(group::SeatOptions seat, const TrainConfig& config) {
  Whereabouts where;
  Notices notices(Orphan::ends_soon);  // both before the first thread of the job
  const Asked asked(where);
  ElasticSettings settings;
  Config(settings.job).read_environment("COHORT_", [](const char* name) -> const char* {
    const char* value = std::getenv(name);
    return value == nullptr || *value == 0 ? nullptr : value;
  });
  if (!settings.job.log.empty()) set_log_level(settings.job.log);
  if (settings.job.calibration.empty()) settings.job.calibration = collective::usual_calibration_folder();
  settings.threads = settings.job.threads;
  if (const char* folder = std::getenv("COHORT_HISTORY"); folder != nullptr) settings.history = folder;
  ElasticTrainer trainer(std::move(seat), config, std::move(settings), where);
  const Heeding heeding(notices, [&](const std::string& signal) { trainer.leave(signal); });
  const std::optional<RunSummary> summary = trainer.run();
  if (!summary) return 0;
  fmt::print("\n{}", summary_text(*summary));
  return tell_end(*summary);
}

int train(const TrainConfig& config) {
  if (auto seat = ElasticJob::from_environment(group::read_environment())) return train_elastic(*std::move(seat), config);
  Whereabouts where;
  Notices notices(Orphan::goes_on);  // both before the first thread of the job
  const Asked asked(where);
  where.doing("meeting the other ranks");
  JobOptions options;
  options.comm = config.comm;
  options.bits = config.bits;
  Job job = init(options);
  try {
    Trainer trainer(job, config, &where);
    const Heeding heeding(notices, [&](const std::string& signal) { trainer.leave(signal); });
    const RunSummary summary = trainer.run();
    if (job.rank().value == 0 && !summary.left) fmt::print("\n{}", summary_text(summary));
    return tell_end(summary);
  } catch (const Failure& failure) {
    if (told_elsewhere(failure.error(), job.rank())) return kExitUsage;
    throw;
  }
}

int train_main(int argc, char** argv) {
  hold_notices();
  SettingsSource source;
  CLI::App app{"one rank of `cohort train`", "cohort-worker train"};
  app.add_option("config", source.file, "YAML file with settings");
  app.add_option("--set", source.sets, "key=value")->expected(1)->take_all();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return fmt::print("{}", app.help()), 0;
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}", error.what());
  }
  return train(read_settings(source));
}

}  // namespace

Task train_task() { return {"train", "one rank of `cohort train`", train_main}; }

}  // namespace cohort::cli::worker
