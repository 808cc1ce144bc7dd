#include "cohort/cli/plan_workers.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "cohort/collective/cost/calibration_file.h"
#include "cohort/launch/exit_codes.h"
#include "cohort/launch/worker_program.h"

namespace cohort::cli {

int plan_with_workers(const train::SettingsSource& source, int ranks, bool alone, const std::vector<std::string>& more) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int busy = alone ? 1 : std::min(ranks, cores);
  std::vector<std::string> args{"plan"};
  if (!source.file.empty()) args.push_back(source.file);
  for (const auto& set : source.sets) args.insert(args.end(), {"--set", set});
  const char* const given = std::getenv("COHORT_CALIBRATION");
  args.insert(args.end(), {"--ranks", std::to_string(ranks), "--calibration",
                           given != nullptr && *given != 0 ? given : collective::usual_calibration_folder()});
  args.insert(args.end(), more.begin(), more.end());
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  options.ranks = std::to_string(busy);
  options.ranks_given = true;
  const int status = launch::run_workers(std::move(options), args, {.answer_status = kNothingFits});
  return status == kNothingFits ? launch::kExitFailure : status;
}

}  // namespace cohort::cli
