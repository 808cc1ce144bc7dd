// The foreground process: what the shell waits for, in the terminal's foreground process group. It forks the launcher, forwards signals and
// terminal input, and passes on the exit status. The two watch each other: whichever is killed, the other ends every process of the job
// (both are child subreapers, so none can escape).
//
//   shell -- foreground -- launcher -- rank 0, rank 1, ..   (a process group each; a rank dies with the launcher, PR_SET_PDEATHSIG)
//
// Workers of an elastic `cohort train` get SIGTERM instead of SIGKILL when the launcher dies, end their step and save; the foreground
// process ends what is left after a few seconds.
//
// Threads: one. Failure: Kind::system before anything was started.
#pragma once
#include <functional>
#include <string_view>

#include "cohort/launch/launcher.h"

namespace cohort::launch {

int run_in_foreground(LaunchPlan plan);  // plan.foreground and plan.input are filled here

// The same for an agent: `work` in a process of its own, watched by this one. foreground: readable once this one is gone.
using Work = std::function<int(Fd foreground, Signals& signals)>;
int run_with_foreground(std::string_view name, const Work& work);

}  // namespace cohort::launch
