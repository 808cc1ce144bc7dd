// Which ranks of a run were slow, and when: what every rank's pace in every step says to the detector (observe/straggler_detector.h), and
// the periods that come of it. Rates are of several steps together: samples by seconds, which one long step does not bend as it bends a
// mean of rates. Owner: RunLogger, on rank 0. Threads: one. Failure: none.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/observe/straggler_detector.h"

namespace cohort::train {

class StragglerLog {
 public:
  using Changes = std::vector<observe::StragglerDetector::Change>;
  // paces: seconds a sample took on each rank; 0: not known. Nothing: no window of steps ended with this one.
  std::optional<Changes> add_step(std::span<const double> paces, std::int64_t step);
  void load(const std::vector<nlohmann::json>& lines);  // of metrics.jsonl, of a run that is resumed
  std::size_t slow_ranks() const { return detector_.slow().size(); }
  std::string text() const;  // "rank 2 (0.51 of the median) from step 24 on to 61"; empty: none was slow

 private:
  void end_period(std::int64_t rank, std::int64_t step);

  struct Period {
    std::int64_t rank = 0, from = 0, to = -1;  // steps; -1: it still is
    double of_median = 1;                      // when it was named
  };
  observe::StragglerDetector detector_;
  std::vector<Period> periods_;
  std::vector<double> paces_, counts_;  // of the window under way, by rank
  std::int64_t steps_ = 0;
  Clock::time_point began_ = Clock::now();
  bool warm_ = false;  // the first window is over
};

}  // namespace cohort::train
