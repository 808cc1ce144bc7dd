// An agent: the launcher's hands on another host. It reaches the coordinator, starts the host's ranks with the cores and threads of that
// host, sends back what they write and how they end, passes signals on, and ends them all when the launcher is gone: at the end of its
// stream, or after kMostSilence beats without a word. Two processes, as a launcher is (run_front.h): whichever is killed, the other ends
// what is left. Threads: one. Failure: a trouble frame to the launcher, and exit status 1.
#pragma once
#include "cohort/base/deadline.h"
#include "cohort/base/fd.h"
#include "cohort/cli/run_signals.h"
#include "cohort/group/place.h"

namespace cohort::cli {

inline constexpr Seconds kBeat{1};
inline constexpr int kMostSilence = 15;  // beats that both sides counted: time in which a process was stopped does not count

// The rest of the agent's life, over this process's standard input and output. front: readable once the front process is gone.
int serve_launcher(const group::Environment& environment, Fd front, Signals& signals);

// Variables that belong to a host or a login and are not carried from one to another.
bool belongs_to_host(std::string_view variable);

}  // namespace cohort::cli
