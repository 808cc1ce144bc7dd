#include "cohort/group/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::group {

void Stragglers::saw(Rank rank, double samples_per_second) {
  Pace& pace = paces_[rank];
  const double weight = std::max(kWeight, 1.0 / ++pace.seen);  // at first the mean: nobody is named for how it began
  pace.smoothed = (1 - weight) * pace.smoothed + weight * samples_per_second;
}

void Stragglers::forget(Rank rank) { paces_.erase(rank); }

// The upper of the two in the middle: of two ranks the faster one is the measure, and the other can be slow.
double Stragglers::median() const {
  std::vector<double> all;
  for (const auto& [rank, pace] : paces_)
    if (pace.seen >= kLeast) all.push_back(pace.smoothed);
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::vector<Stragglers::Change> Stragglers::changes() {
  std::vector<Change> found;
  const double middle = median();
  if (middle <= 0) return found;
  for (auto& [rank, pace] : paces_) {
    if (pace.seen < kLeast) continue;
    const double part = pace.smoothed / middle;
    const bool slow = part < (pace.slow ? kFine : kSlow);
    if (slow != pace.slow) found.push_back({rank, slow, part});
    pace.slow = slow;
  }
  return found;
}

std::vector<Rank> Stragglers::slow() const {
  std::vector<Rank> ranks;
  for (const auto& [rank, pace] : paces_)
    if (pace.slow) ranks.push_back(rank);
  return ranks;
}

std::string describe(const Stragglers::Change& change) {
  return fmt::format("rank {} is {}: {:.2f} of the median throughput", change.rank.value, change.slow ? "slow" : "no longer slow",
                     change.of_median);
}

}  // namespace cohort::group
