// Starts the ranks that plan: as many as the planned ones will keep this machine's cores busy, so that times are those of a busy machine.
#pragma once
#include <string>
#include <vector>

#include "cohort/train/settings.h"

namespace cohort::cli {

// alone: the planned ranks have machines of their own. more: further arguments of `cohort-worker plan`. Returns the exit status.
int plan_with_workers(const SettingsSource& source, int ranks, bool alone, const std::vector<std::string>& more);

}  // namespace cohort::cli
