// Every process that descends from this one, and their end. With PR_SET_CHILD_SUBREAPER orphans become our children instead of init's, so
// that also processes that left their group and session (setsid, double fork) are found. Threads: one. Failure: none; what cannot be killed
// (another user's process) is left at the deadline.
#pragma once
#include <sys/types.h>

#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::launch {

void become_subreaper();

// Children, their children and so on; zombies are left out.
std::vector<pid_t> descendants(pid_t of);

// Kills every descendant of this process and reaps what becomes its child, until none is left or the deadline passes; the rest is returned.
std::vector<pid_t> kill_descendants(Deadline deadline);

// The same for the end of a job: descendants first get a moment to end by themselves (Python's resource tracker unlinks shared memory
// then).
std::vector<pid_t> end_descendants(Deadline deadline);

}  // namespace cohort::launch
