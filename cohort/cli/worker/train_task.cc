// cohort-worker train: one rank of `cohort train`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/worker/asked.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/train/loop/together.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

int train(const TrainConfig& config) {
  Whereabouts where;
  const Asked asked(where);  // before the first thread of the job
  where.doing("meeting the other ranks");
  JobOptions options;
  options.comm = config.comm;
  options.bits = config.bits;
  Job job = init(options);
  try {
    const RunSummary summary = Trainer(job, config, &where).run();
    if (job.rank().value == 0) fmt::print("\n{}", summary_text(summary));
    std::fflush(stdout);
    if (!summary.saved) fmt::print(stderr, "cohort train: the run ended, but its last checkpoint could not be written; see above\n");
    return summary.saved ? 0 : kExitFailure;
  } catch (const Failure& failure) {
    if (told_elsewhere(failure.error(), job.rank())) return kExitUsage;
    throw;
  }
}

int run(int argc, char** argv) {
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

Task train_task() { return {"train", "one rank of `cohort train`", run}; }

}  // namespace cohort::cli::worker
