#include "cohort/launch/worker_program.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::launch {

std::string find_worker() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& place : {here / "cohort-worker", here / "../libexec/cohort/cohort-worker"})
    if (std::filesystem::exists(place)) return place.string();
  throw_failure(Kind::usage, "cohort-worker is not beside {}: this cohort was built without torch; build with COHORT_WITH_TORCH",
                here.string());
}

int run_workers(LaunchOptions options, const std::vector<std::string>& args, WorkerTraits worker) {
  options.prefix = false;
  options.quiet = true;
  options.command = {find_worker()};
  options.command.insert(options.command.end(), args.begin(), args.end());
  check_options(options);
  LaunchPlan plan;
  plan.environment = group::read_environment();
  plan.options = std::move(options);
  plan.worker = worker;
  plan.worker.sigquit_reports = plan.worker.reports_usage = true;
  if (const char* tty = isatty(STDERR_FILENO) != 0 ? ttyname(STDERR_FILENO) : nullptr) {
    plan.environment["COHORT_TTY"] = tty;
    plan.worker.draws_progress_bar = true;
  }
  return run_job(std::move(plan));
}

}  // namespace cohort::launch
