// Which implementations take part in a bench, and the command line that starts each: a program that prints one JSON line per size
// (results.h). Threads: the main one. Failure: an implementation that cannot take part says why and is left out; it is not an error. To add
// one: a row in implementations.cc, its program under bench/baselines/.
#pragma once
#include <string>
#include <vector>

#include "cohort/bench/options.h"
#include "cohort/bench/process.h"

namespace cohort::bench {

struct Implementation {
  std::string who;        // cohort, openmpi, openmpi-tuned, gloo
  std::string algorithm;  // ours: the row to force, empty for the selector's choice
  std::string buffers;    // ours: allocate | any
  bool ours() const { return who == "cohort"; }
  std::string label() const;  // "cohort ring any"
};

struct Implementations {
  std::vector<Implementation> implementations;  // ours first
  std::vector<std::string> notes;               // which are missing and why, and how each one is set up
};

// The implementations of one collective at one rank count.
Implementations select_implementations(const BenchOptions& options, const std::string& collective, int ranks);

// out_path: where our own rank 0 writes; the others print to stdout.
CommandLine program_of(const Implementation& implementation, const BenchOptions& options, const std::string& collective, int ranks,
                       const std::string& out_path);

}  // namespace cohort::bench
