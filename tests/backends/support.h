// Ranks for tests of backends: as threads (run_over) and as processes of a launcher (capture).
#pragma once
#include <functional>
#include <string>

#include "cohort/collective/plugin/backend.h"
#include "cohort/collective/ranks.h"

namespace cohort::collective {

// As run_ranks, with a backend and deterministic: false.
void run_over(const std::string& backend, int ranks, const std::function<void(Communicator&)>& body, const MakeLinks& make = nullptr);

struct Captured {
  int status = 0;    // as the shell's
  std::string text;  // stdout and stderr
};
Captured capture(const std::string& command);  // at most two minutes

}  // namespace cohort::collective
