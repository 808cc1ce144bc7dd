// Ranks for tests of engines: as threads (Crew) and as processes of a launcher (capture).
#pragma once
#include <functional>
#include <string>

#include "cohort/collective/engine.h"
#include "cohort/collective/ranks.h"

namespace cohort::collective {

// As run_ranks, with an engine underneath and bits: free.
void run_over(const std::string& comm, int ranks, const std::function<void(Communicator&)>& body, const MakeMeshes& make = nullptr);

struct Captured {
  int status = 0;    // as the shell's
  std::string text;  // stdout and stderr
};
Captured capture(const std::string& command);  // at most two minutes

}  // namespace cohort::collective
