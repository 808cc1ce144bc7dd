// Finds stragglers: ranks whose own throughput, smoothed, is below 0.8 of the median of all. Own: samples of a step divided by the seconds
// that the rank computed, without the time it waited for the others, since synchronous ranks all take as long as the slowest.
//   smoothed = (1 - kWeight) * smoothed + kWeight * latest; of the first five steps the mean
//   slow below kSlow * median, no longer slow from kRecovered * median on
// Owner: the run's logger on rank 0. Threads: one at a time. Failure: none.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort::observe {

class StragglerDetector {
 public:
  static constexpr double kWeight = 0.2;  // half as fast: below 0.8 after three steps; one bad step (0.4) of every five: never
  static constexpr double kSlow = 0.8, kRecovered = 0.85;
  static constexpr int kMinSteps = 3;  // steps of a rank before it can count as slow

  void add(Rank rank, double samples_per_second);
  void forget(Rank rank);

  struct Change {
    Rank rank;
    bool slow = false;
    double of_median = 1;
    bool operator==(const Change&) const = default;
  };
  std::vector<Change> changes();  // ranks that became slow, or are no longer, since the last call
  std::vector<Rank> slow() const;

 private:
  struct Throughput {
    double smoothed = 0;
    int steps = 0;
    bool slow = false;
  };
  double median() const;
  std::map<Rank, Throughput> throughputs_;
};

// "rank 2 is slow: 0.51 of the median throughput"
std::string describe(const StragglerDetector::Change& change);

}  // namespace cohort::observe
