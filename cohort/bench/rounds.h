// Runs implementations interleaved: R rounds, in each every implementation once as fresh processes, never two at a time, in an order that
// rotates, so that a machine that gets slower or faster meanwhile affects all alike. Threads: the main one. Failure: ours failing is a
// Failure with its last lines; another's failing is a note. Wrong sums are Kind::corrupt.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cohort/bench/implementations.h"
#include "cohort/bench/results.h"

namespace cohort::bench {

struct Report {
  std::string collective;
  int ranks = 0;
  std::vector<Row> rows;           // by size, in each ours first
  std::vector<std::string> notes;  // missing implementations, settings
  std::vector<std::string> voids;  // why sizes of this run do not count; empty on a quiet machine
};

using Progress = std::function<void(const std::string& what, double share)>;

// One collective at one rank count; options.sizes is not empty.
Report run_rounds(const BenchOptions& options, const std::string& collective, int ranks, const Progress& progress);

// One start of one implementation: what it printed, parsed.
std::vector<Line> run_once(const Implementation& implementation, const BenchOptions& options, const std::string& collective, int ranks);
// The text our own worker writes for a task (measure, explain, calibrate).
std::string run_worker(const Implementation& implementation, const BenchOptions& options, const std::string& collective, int ranks);

// Shared by the kinds of rounds. A program that must exit with 0; label and ranks are for the message when it does not.
Outcome run_well(const CommandLine& program, Deadline deadline, const std::string& label, int ranks);
// The same for ranks under `cohort run`, whose stdout is for people: rank 0 writes into the file whose path make() is given.
std::string run_and_read(const std::function<CommandLine(const std::string& path)>& make, Deadline deadline, const std::string& label,
                         int ranks);
// Calls start(who, round, share done) for every implementation in every round, in an order that rotates.
void for_each_start(std::size_t implementations, int rounds, const std::function<void(std::size_t who, int round, double share)>& start);

}  // namespace cohort::bench
