#include "cohort/train/loop/step_profiler.h"

#include <algorithm>
#include <numeric>

#include "cohort/base/ledger.h"

namespace cohort::train {
namespace {

constexpr std::size_t kWarm = 3;   // steps that still make pages, threads and plans
constexpr std::size_t kTurns = 4;  // ranks that share a core take turns: a short step is followed by a long one

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Means of so many steps in a row, from every step on.
std::vector<double> in_a_row(const std::vector<double>& steps, std::size_t count) {
  std::vector<double> means;
  for (std::size_t first = 0; first + count <= steps.size(); ++first)
    means.push_back(std::accumulate(&steps[first], &steps[first] + count, 0.0) / static_cast<double>(count));
  return means;
}

}  // namespace

void StepProfiler::begin_step() {
  meter_.restart();
  base_ = meter_.now();
  start_ = Clock::now();
}

void StepProfiler::end_forward() { kept_ = std::max(kept_, meter_.now() - std::min(base_, meter_.now())); }

void StepProfiler::end_step() {
  seconds_.push_back(Seconds(Clock::now() - start_).count());
  peak_ = std::max(peak_, meter_.peak() - std::min(base_, meter_.peak()));
}

plan::MeasuredStep StepProfiler::measured_step() const {
  std::vector<double> settled = seconds_;
  if (settled.size() > 2 * kWarm) settled.erase(settled.begin(), settled.begin() + kWarm);
  settled = in_a_row(settled, std::clamp<std::size_t>(settled.size(), 1, kTurns));
  plan::MeasuredStep found{.seconds = percentile(settled, 0.5), .quiet_seconds = percentile(settled, 0.1)};
  for (std::size_t i = 0; i < kMemoryClasses; ++i)
    found.bytes[i] = static_cast<double>(Ledger::process().of(static_cast<MemoryClass>(i)).peak);
  found.bytes[static_cast<std::size_t>(MemoryClass::activations)] = static_cast<double>(kept_);
  found.bytes[static_cast<std::size_t>(MemoryClass::temporaries)] = static_cast<double>(peak_ - std::min(kept_, peak_));
  return found;
}

}  // namespace cohort::train
