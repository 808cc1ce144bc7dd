#include "cohort/observe/phases.h"

#include <chrono>
#include <numeric>

namespace cohort::observe {
namespace {

PhaseSeconds seconds_of(const std::array<std::int64_t, kPhases>& nanoseconds) {
  PhaseSeconds out;
  for (std::size_t i = 0; i < kPhases; ++i) out.seconds[i] = static_cast<double>(nanoseconds[i]) * 1e-9;
  return out;
}

}  // namespace

double PhaseSeconds::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseSeconds& PhaseSeconds::operator+=(const PhaseSeconds& more) {
  for (std::size_t i = 0; i < kPhases; ++i) seconds[i] += more.seconds[i];
  return *this;
}

std::array<double, kPhases> PhaseSeconds::shares() const {
  std::array<double, kPhases> out{};
  const double all = sum();
  if (all > 0)
    for (std::size_t i = 0; i < kPhases; ++i) out[i] = seconds[i] / all;
  return out;
}

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

PhaseSeconds PhaseClock::end_step() {
  change(current_);
  for (std::size_t i = 0; i < kPhases; ++i) total_[i] += step_[i];
  ++steps_;
  const auto out = seconds_of(step_);
  step_ = {};
  return out;
}

PhaseSeconds PhaseClock::total() const { return seconds_of(total_); }

}  // namespace cohort::observe
