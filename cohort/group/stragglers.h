// Who is slow: a rank whose own throughput, smoothed, is below 0.8 of the median of all. Own means without waiting for the others: samples
// of a step by the seconds it computed, since in step with its peers every rank seems as slow as the slowest.
//   smoothed = (1 - kWeight) * smoothed + kWeight * latest, of the first five the mean;   slow below kSlow * median, no longer slow from
//   kFine * median on
// Owner: the coordinator, one per epoch. Threads: one at a time. Failure: none.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cohort/base/ids.h"

namespace cohort::group {

class Stragglers {
 public:
  static constexpr double kWeight = 0.2;  // half as fast: below 0.8 after three steps; one bad step (0.4) of every five: never
  static constexpr double kSlow = 0.8, kFine = 0.85;
  static constexpr int kLeast = 3;  // steps of a rank before it is judged

  void saw(Rank rank, double samples_per_second);
  void forget(Rank rank);

  struct Change {
    Rank rank;
    bool slow = false;
    double of_median = 1;
    bool operator==(const Change&) const = default;
  };
  std::vector<Change> changes();  // who became slow, or is no longer, since the last call
  std::vector<Rank> slow() const;

 private:
  struct Pace {
    double smoothed = 0;
    int seen = 0;
    bool slow = false;
  };
  double median() const;
  std::map<Rank, Pace> paces_;
};

// "rank 2 is slow: 0.51 of the median throughput"
std::string describe(const Stragglers::Change& change);

}  // namespace cohort::group
