// The front: the process the shell sees. It forks the launcher, forwards signals and terminal input, and keeps the exit status. Front and
// launcher watch each other: whichever is killed, the other ends every process of the job (both are child subreapers, so none can hide).
//
//   shell -- front -- launcher -- rank 0, rank 1, ..   (a process group each; a rank dies with the launcher, PR_SET_PDEATHSIG)
//
// Workers of an elastic `cohort train` are told instead of killed when the launcher dies, end their step and save; the front ends what is
// left after a few seconds.
//
// Threads: one. Failure: Kind::system before anything was started.
#pragma once
#include <functional>
#include <string_view>

#include "cohort/cli/run_launcher.h"

namespace cohort::cli {

int run_in_front(LaunchPlan plan);  // plan.front and plan.input are filled here

// The same for an agent: `work` in a process of its own, watched over by this one. front: readable once this one is gone.
using Work = std::function<int(Fd front, Signals& signals)>;
int watch_over(std::string_view name, const Work& work);

}  // namespace cohort::cli
