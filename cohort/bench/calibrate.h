// The constants of the cost model, measured: ranks time a few all-reduces with the row forced, and each constant is what makes the row's
// own cost function give the time that was seen. The model itself is written once, in the rows (collective/all_reduce/). Threads: pure
// functions, and the rank's own. Failure: a constant that cannot be distinguished from noise keeps its built-in value, and is named.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cohort/bench/options.h"
#include "cohort/collective/communicator.h"
#include "cohort/collective/operations/all_reduce.h"

namespace cohort::bench {

struct TimedRow {
  std::string row;  // an all-reduce's name, or "kernel": two buffers into one on every rank
  collective::Shape shape;
  double seconds = 0;
};

// In the ranks: one JSON line per timed row.
std::string calibration_samples(collective::Communicator& world, const BenchOptions& options);
std::vector<TimedRow> parse_samples(std::string_view text);

struct Fit {
  collective::Calibration constants;
  std::vector<std::string> kept;  // constants that stayed as they were
};
// uncrowded: no more ranks than cores. crowded: more.
Fit fit(const std::vector<TimedRow>& uncrowded, const std::vector<TimedRow>& crowded, const collective::Calibration& start);

// The value of one constant for which `row` costs `seconds`; nullopt when no positive one does. Costs are linear in a latency and in
// 1/rate.
std::optional<double> solve_latency(const collective::AllReduce& row, const collective::Shape& shape, collective::Calibration k,
                                    double collective::Calibration::*constant, double seconds);
std::optional<double> solve_rate(const collective::AllReduce& row, const collective::Shape& shape, collective::Calibration k,
                                 double collective::Calibration::*constant, double seconds);

// The parent: starts the ranks, fits, writes the file, says where.
int calibrate(const BenchOptions& options);

}  // namespace cohort::bench
