#include "cohort/cli/plan_workers.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cohort/cli/worker_program.h"
#include "cohort/collective/calibrated.h"

namespace cohort::cli {

int plan_with_workers(const SettingsSource& source, int ranks, bool alone, const std::vector<std::string>& more) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int busy = alone ? 1 : std::min(ranks, cores);
  std::vector<std::string> args{"plan"};
  if (!source.file.empty()) args.push_back(source.file);
  for (const auto& set : source.sets) args.insert(args.end(), {"--set", set});
  const char* const told = std::getenv("COHORT_CALIBRATION");
  args.insert(args.end(), {"--ranks", std::to_string(ranks), "--calibration",
                           told != nullptr && *told != 0 ? told : collective::usual_calibration_folder()});
  args.insert(args.end(), more.begin(), more.end());
  return run_workers(std::to_string(busy), args);
}

}  // namespace cohort::cli
