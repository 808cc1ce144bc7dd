// An agent: the launcher's part on another host. It connects to the coordinator, starts the host's ranks with the cores and threads of that
// host, sends back what they write and how they end, passes signals on, and ends them all when the launcher is gone: at the end of its
// stream, or after kMaxMissedHeartbeats. Two processes, as a launcher is (foreground.h): whichever is killed, the other ends what is left.
// Threads: one. Failure: an error frame to the launcher, and exit status 1.
#pragma once
#include "cohort/base/fd.h"
#include "cohort/group/rank_info.h"
#include "cohort/launch/signals.h"

namespace cohort::launch {

// Until the agent ends, over this process's standard input and output. foreground: readable once the foreground process is gone.
int run_agent(const group::Environment& environment, Fd foreground, Signals& signals);

}  // namespace cohort::launch
