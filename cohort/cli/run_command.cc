// cohort run: a program as several ranks of one job.
#include <fmt/format.h>

#include <utility>

#include "cohort/cli/cli.h"
#include "cohort/launch/launcher.h"

namespace cohort::cli {
namespace {

int run(int argc, char** argv) {
  launch::LaunchPlan plan;
  plan.environment = group::read_environment();
  plan.options = launch::parse_launch_options({argv + 1, argv + argc}, plan.environment);
  if (plan.options.help) return fmt::print("{}", launch::launch_help()), 0;
  plan.worker.held_state = plan.options.held_state;
  return launch::run_job(std::move(plan));
}

}  // namespace

Command run_command() { return {"run", "start a program as several ranks of one job", run}; }

}  // namespace cohort::cli
