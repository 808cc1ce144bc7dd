#include "cohort/cli/worker_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/run_binding.h"
#include "cohort/cli/run_front.h"
#include "cohort/cli/run_hosts.h"

namespace cohort::cli {

std::string find_worker() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& place : {here / "cohort-worker", here / "../libexec/cohort/cohort-worker"})
    if (std::filesystem::exists(place)) return place.string();
  throw_failure(Kind::usage, "cohort-worker is not beside {}: this cohort was built without torch; build with COHORT_WITH_TORCH",
                here.string());
}

int run_workers(const std::string& ranks, const std::vector<std::string>& args, const Losses& losses,
                const std::vector<std::string>& where) {
  LaunchPlan plan;
  plan.environment = group::read_environment();
  const std::string worker = find_worker();
  std::vector<std::string> words{"--no-prefix", "--quiet"};
  if (!ranks.empty()) words.insert(words.end(), {"-n", ranks});
  words.insert(words.end(), where.begin(), where.end());
  words.insert(words.end(), {"--", worker});
  words.insert(words.end(), args.begin(), args.end());
  plan.options = parse_run(words, plan.environment);
  plan.options.rescue = losses.rescue;
  plan.options.holding = losses.holding;
  plan.options.notices = losses.notices;
  plan.options.quit_asks = plan.options.usage_is_said = true;
  plan.program = find_program(plan.options, plan.environment);
  plan.host = look_at_host();
  place_job(plan);
  if (const char* tty = isatty(STDERR_FILENO) != 0 ? ttyname(STDERR_FILENO) : nullptr) {
    plan.environment["COHORT_TTY"] = tty;
    plan.options.draws_bar = true;
  }
  return run_in_front(std::move(plan));
}

}  // namespace cohort::cli
