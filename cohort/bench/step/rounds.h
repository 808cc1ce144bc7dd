// The implementations of `cohort bench step`, and their rounds (cohort/bench/rounds.h says why they are interleaved).
// Threads: the main one. Failure: ours failing is a Failure with its last lines; another's failing is a note.
// To add an implementation: a case in step_program(), its program under bench/baselines/.
#pragma once
#include <string>
#include <vector>

#include "cohort/bench/process.h"
#include "cohort/bench/rounds.h"
#include "cohort/bench/step/options.h"
#include "cohort/bench/step/results.h"

namespace cohort::bench {

struct StepReport {
  std::vector<StepRow> rows;       // ours first
  std::vector<std::string> notes;  // missing implementations, losses that differ
  std::vector<std::string> voids;
  std::vector<std::string> slower;  // than --require
};

// out_path: where rank 0 of our own worker writes; torch-ddp prints to stdout.
CommandLine step_program(const std::string& who, const StepOptions& options, int ranks, const std::string& out_path);
StepReport run_step_rounds(const StepOptions& options, int ranks, const Progress& progress);

// The whole of `cohort bench step`; argv[0] is "step".
int run_step(int argc, char** argv);

}  // namespace cohort::bench
