// Runs contestants interleaved: R rounds, in each every contestant once as fresh processes, never two at a time, in an order that rotates,
// so that a machine that grows slower or faster meanwhile treats all alike. Threads: the main one. Failure: ours failing is a Failure with
// its last words; another's failing is a note. Wrong sums are Kind::corrupt.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cohort/cli/bench_contestants.h"
#include "cohort/cli/bench_results.h"

namespace cohort::cli::bench {

struct Report {
  std::string verb;
  int ranks = 0;
  std::vector<Row> rows;           // by size, in each ours first
  std::vector<std::string> notes;  // missing contestants, settings
  std::vector<std::string> voids;  // why sizes of this run do not count; empty on a quiet machine
};

using Progress = std::function<void(const std::string& what, double share)>;

// One verb at one rank count; options.sizes is not empty.
Report run_rounds(const BenchOptions& options, const std::string& verb, int ranks, const Progress& progress);

// One start of one contestant: what it printed, parsed.
std::vector<Line> run_once(const Contestant& contestant, const BenchOptions& options, const std::string& verb, int ranks);
// The text our own worker writes for a task (measure, explain, calibrate).
std::string run_worker(const Contestant& contestant, const BenchOptions& options, const std::string& verb, int ranks);

// What every kind of rounds is made of. A program that has to end well; label and ranks are for the message when it does not.
Outcome run_well(const Program& program, Deadline deadline, const std::string& label, int ranks);
// The same for ranks under `cohort run`, whose stdout is for people: rank 0 writes into the file whose path make() is given.
std::string written_by(const std::function<Program(const std::string& path)>& make, Deadline deadline, const std::string& label, int ranks);
// Calls start(who, round, share done) for every contestant in every round, in an order that rotates.
void each_start(std::size_t contestants, int rounds, const std::function<void(std::size_t who, int round, double share)>& start);

}  // namespace cohort::cli::bench
