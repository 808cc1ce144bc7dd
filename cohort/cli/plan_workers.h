// Starts the ranks of `cohort-worker plan`: as many as the planned run will have on this machine, so that kernels are timed under its load.
// Threads: the main one. Failure: as run_workers().
#pragma once
#include <string>
#include <vector>

#include "cohort/train/settings.h"

namespace cohort::cli {

inline constexpr int kNothingFits = 3;  // of `cohort-worker plan`: it worked, and no choice fits the memory given

// alone: the planned ranks have machines of their own. more: further arguments of `cohort-worker plan`. Returns the exit status,
// 1 when nothing fits.
int plan_with_workers(const train::SettingsSource& source, int ranks, bool alone, const std::vector<std::string>& more);

}  // namespace cohort::cli
