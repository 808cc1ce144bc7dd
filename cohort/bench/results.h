// Arithmetic of the bench: from the lines that implementations print to the rows people read.
// Threads: pure functions. Failure: Kind::corrupt for a line that is not what an implementation promises.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench {

// One size in one start of one implementation.
struct Line {
  std::size_t bytes = 0;
  double median_us = 0, low_us = 0, high_us = 0;
  int repeats = 0;
  std::uint32_t checksum = 0;
  double limit_us = 0;               // ours only: the time of an in-place update of all ranks' buffers at once
  std::string algorithm, transport;  // ours only: the row that ran, and over what
};

// Every line of `out` that is a JSON object with these fields; other text is passed over.
std::vector<Line> parse_lines(std::string_view out);

// One implementation at one size, over all rounds.
struct Row {
  std::string who, collective, algorithm, dtype, op, buffers, transport;
  int ranks = 0;
  std::size_t bytes = 0;
  double median_us = 0;  // the median over rounds of the rounds' medians
  double low_us = 0;     // the fastest round's median
  double high_us = 0;    // the slowest round's
  int repeats = 0;       // samples, all rounds together
  int rounds = 0;
  std::uint32_t checksum = 0;
  std::optional<double> limit_us;     // bytes that must move, over the bandwidth of an in-place update in this run
  std::optional<double> limit_share;  // limit_us / median_us
  std::optional<double> ratio;        // theirs over ours; absent in our own rows
  bool spoiled = false;               // this run is void, see expectations
};

// Fills the times of `row` from the same size of several rounds.
void summarize(Row& row, const std::vector<Line>& rounds);

// Bytes that any implementation must read from or write to memory: N is the largest buffer of a rank, P the ranks. all_reduce in place:
// 2PN.
double bytes_that_must_move(std::string_view collective, int ranks, std::size_t bytes);
std::string_view bytes_that_must_move_formula(std::string_view collective);
// The in-place update moved 2PN bytes (each read once, written once) in update_us; this is the time the collective's own bytes would take.
std::optional<double> limit_us(std::string_view collective, int ranks, std::size_t bytes, double update_us);

// What an implementation is known to need on this kind of machine, float32 sum; nullopt when no figure is known.
struct Machine {
  std::string model;
  int cores = 0;
};
Machine this_machine();
std::optional<double> expected_us(const Machine& machine, const Row& row);
inline constexpr double kVoidAbove = 1.25;  // slower than this many times the expectation: something else uses the machine

}  // namespace cohort::bench
