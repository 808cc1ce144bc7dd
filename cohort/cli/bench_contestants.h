// Who takes part in a bench, and the command line that starts each: a program that prints one JSON line per size (bench_results.h).
// Threads: the main one. Failure: a contestant that cannot take part says why and is left out; it is not an error.
// To add one: a row in bench_contestants.cc, its program under bench/contestants/.
#pragma once
#include <string>
#include <vector>

#include "cohort/cli/bench_options.h"
#include "cohort/cli/bench_process.h"

namespace cohort::cli::bench {

struct Contestant {
  std::string who;        // cohort, openmpi, openmpi-tuned, gloo
  std::string algorithm;  // ours: the row to force, empty for the selector's choice
  std::string buffers;    // ours: allocate | any
  bool ours() const { return who == "cohort"; }
  std::string label() const;  // "cohort ring any"
};

struct Lineup {
  std::vector<Contestant> contestants;  // ours first
  std::vector<std::string> notes;       // who is missing and why, and how each one is set up
};

// The contestants of one verb at one rank count.
Lineup line_up(const BenchOptions& options, const std::string& verb, int ranks);

// out_path: where our own rank 0 writes; the others print to stdout.
Program program_of(const Contestant& contestant, const BenchOptions& options, const std::string& verb, int ranks,
                   const std::string& out_path);

}  // namespace cohort::cli::bench
