// cohort-worker train: one rank of `cohort train`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cohort/base/error.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/train/loop/trainer.h"
#include "cohort/train/settings.h"

namespace cohort::cli::worker {
namespace {

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
  Job job = init();
  const RunSummary summary = Trainer(job, read_settings(source)).run();
  if (job.rank().value == 0) fmt::print("\n{}", summary_text(summary));
  std::fflush(stdout);
  return 0;
}

}  // namespace

Task train_task() { return {"train", "one rank of `cohort train`", run}; }

}  // namespace cohort::cli::worker
