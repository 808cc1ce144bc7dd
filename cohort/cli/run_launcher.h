// The launcher: the process of `cohort run` that holds the ranks. It starts them, carries their output, lets them meet, and sees to it that
// they all end when one fails, when it is told to, or when the front process (run_front.h) is gone.
// Threads: the main one; the coordinator has its own. Failure: exit statuses and lines on stderr; see docs/launching.md.
#pragma once
#include "cohort/base/fd.h"
#include "cohort/cli/run_binding.h"
#include "cohort/cli/run_options.h"
#include "cohort/cli/run_program.h"
#include "cohort/cli/run_signals.h"

namespace cohort::cli {

struct LaunchPlan {
  RunOptions options;
  int ranks = 1;
  Program program;
  group::Environment environment;
  HostShape host;
  Fd front;        // readable (at its end) once the front process is gone
  int input = -1;  // of rank 0; -1: nothing to read
};

int launch(LaunchPlan plan, Signals& signals);

}  // namespace cohort::cli
