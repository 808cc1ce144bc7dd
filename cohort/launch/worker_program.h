// Starting the ranks of something that trains: cohort-worker under the same launcher as `cohort run`.
// Threads: the main one. Failure: Kind::usage when cohort-worker is not installed; else the exit status.
#pragma once
#include <string>
#include <vector>

#include "cohort/launch/launcher.h"

namespace cohort::launch {

// Beside this program, or where it is installed (../libexec/cohort). Kind::usage saying how to get it when it is not there.
std::string find_worker();

// Runs `cohort-worker args..` as the ranks that the options say, like `cohort run`; returns the exit status. Output has no prefix.
int run_workers(LaunchOptions options, const std::vector<std::string>& args, WorkerTraits worker = {});

}  // namespace cohort::launch
