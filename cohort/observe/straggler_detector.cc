#include "cohort/observe/straggler_detector.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::observe {

void StragglerDetector::add(Rank rank, double samples_per_second) {
  Throughput& throughput = throughputs_[rank];
  const double weight = std::max(kWeight, 1.0 / ++throughput.steps);  // at first the mean: slow first steps alone make no straggler
  throughput.smoothed = (1 - weight) * throughput.smoothed + weight * samples_per_second;
}

void StragglerDetector::forget(Rank rank) { throughputs_.erase(rank); }

// The upper of the two middle values: of two ranks the faster one is the reference, and the other can be slow.
double StragglerDetector::median() const {
  std::vector<double> all;
  for (const auto& [rank, throughput] : throughputs_)
    if (throughput.steps >= kMinSteps) all.push_back(throughput.smoothed);
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::vector<StragglerDetector::Change> StragglerDetector::changes() {
  std::vector<Change> found;
  const double middle = median();
  if (middle <= 0) return found;
  for (auto& [rank, throughput] : throughputs_) {
    if (throughput.steps < kMinSteps) continue;
    const double ratio = throughput.smoothed / middle;
    const bool slow = ratio < (throughput.slow ? kRecovered : kSlow);
    if (slow != throughput.slow) found.push_back({rank, slow, ratio});
    throughput.slow = slow;
  }
  return found;
}

std::vector<Rank> StragglerDetector::slow() const {
  std::vector<Rank> ranks;
  for (const auto& [rank, throughput] : throughputs_)
    if (throughput.slow) ranks.push_back(rank);
  return ranks;
}

std::string describe(const StragglerDetector::Change& change) {
  return fmt::format("rank {} is {}: {:.2f} of the median throughput", change.rank.value, change.slow ? "slow" : "no longer slow",
                     change.of_median);
}

}  // namespace cohort::observe
