// Arithmetic of `cohort bench step`: from the line each implementation prints to the rows people read.
// Threads: pure functions. Failure: Kind::corrupt for a line that is not what an implementation promises.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/bench/results.h"

namespace cohort::bench {

// One start of one implementation.
struct StepLine {
  double samples_per_s = 0;
  double first_loss = 0, last_loss = 0;       // means: of the first tenth of all steps, of the last quarter
  std::optional<double> compute, wait, comm;  // shares of the window; absent where the implementation does not say
  std::optional<double> moved_bytes;          // received by a rank in a step, as its communicator counts
  std::optional<double> peak_bytes;           // of one rank: resident at the end of a forward or backward, less before the model was made
};
StepLine parse_step_line(std::string_view out);  // the last line that is a JSON object

// One implementation over all rounds.
struct StepRow {
  std::string who, model;
  std::string sync{};  // ours only
  std::string recompute = "none";
  int ranks = 0;
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  double samples_per_s = 0;  // of all ranks together: the median over rounds
  double low = 0, high = 0;  // the slowest and the fastest round
  std::optional<double> compute, wait, comm, moved_bytes, peak_bytes;
  double first_loss = 0, last_loss = 0;
  int rounds = 0;
  std::optional<double> ratio;  // ours over theirs, the median of all rounds' pairs: above 1 cohort is faster; absent in our own row
  std::optional<double> ratio_low, ratio_high;  // its 95 % interval; absent with fewer than six pairs
  bool spoiled = false;
};
void summarize(StepRow& row, const std::vector<StepLine>& rounds);  // medians over the rounds

// Of the pairs that each round made.
void compare(StepRow& row, const std::vector<StepLine>& ours, const std::vector<StepLine>& theirs);
// What is too slow for --require, a line each.
std::vector<std::string> find_slower(const std::vector<StepRow>& rows, double require);

// Implementations train alike when their last losses are close: only steps that train are compared.
inline constexpr double kLossesApart = 0.10;  // other first weights and another order of the samples make 1 to 5 % of difference
std::vector<std::string> compare_losses(const std::vector<StepRow>& rows);  // a line for each pair that is too far apart

// What an implementation is known to reach on this kind of machine; nullopt when no figure is known.
std::optional<double> expected_samples_per_s(const Machine& machine, const StepRow& row);
// Marks the rows of a run in which an implementation was slower than it is known to be, and says so.
std::vector<std::string> find_voids(std::vector<StepRow>& rows, const Machine& machine);

std::string json_line(const StepRow& row);  // one object, no newline
std::string step_table(const std::vector<StepRow>& rows);
std::string step_legend();

}  // namespace cohort::bench
