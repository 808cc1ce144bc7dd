// The outcome of a vote: all that an update, or the mixing of models, needs to know beside what lies in the buckets.
// Owner: values. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

namespace cohort::sync {

struct Decision {
  bool committed = true;
  double clip = 1;
  std::vector<bool> missing{};  // by parameter: no rank had a gradient for it; empty: none
  std::vector<double> sums{};   // by parameter: the sums that the rule needs (optim::Needs); empty: it needs none
  std::int64_t number = 1;      // of the step, as Strategy::schedule() counts
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the step, where finish() was told how many samples it is of
};

}  // namespace cohort::sync
