// The contestants of `cohort bench step`, and their rounds (bench_rounds.h tells why they are interleaved).
// Threads: the main one. Failure: ours failing is a Failure with its last words; another's failing is a note.
// To add a contestant: a case in step_program(), its program under bench/contestants/.
#pragma once
#include <string>
#include <vector>

#include "cohort/cli/bench_process.h"
#include "cohort/cli/bench_rounds.h"
#include "cohort/cli/bench_step_options.h"
#include "cohort/cli/bench_step_results.h"

namespace cohort::cli::bench {

struct StepReport {
  std::vector<StepRow> rows;       // ours first
  std::vector<std::string> notes;  // missing contestants, losses that differ
  std::vector<std::string> voids;
};

// out_path: where rank 0 of our own worker writes; torch-ddp prints to stdout.
Program step_program(const std::string& who, const StepOptions& options, int ranks, const std::string& out_path);
StepReport run_step_rounds(const StepOptions& options, int ranks, const Progress& progress);

// The whole of `cohort bench step`; argv[0] is "step".
int run_step(int argc, char** argv);

}  // namespace cohort::cli::bench
