// A Deadline is a moment on the steady clock. It is passed down whole, never re-split into timeouts.
// Threads: values, any. Wall-clock jumps do not move it.
#pragma once
#include <algorithm>
#include <chrono>

namespace cohort {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): 5s reads better than Seconds{5}

class Deadline {
 public:
  constexpr Deadline() = default;  // never: for values that are set before use
  explicit constexpr Deadline(Clock::time_point at) : at_(at) {}
  static Deadline in(Seconds span) {
    if (span > Seconds{1e8}) return Deadline{};
    return Deadline{Clock::now() + std::chrono::duration_cast<Clock::duration>(span)};
  }
  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  bool never() const { return at_ == Clock::time_point::max(); }
  Clock::time_point at() const { return at_; }
  Clock::duration left() const {
    if (never()) return Clock::duration::max();
    return std::max(Clock::duration::zero(), at_ - Clock::now());
  }
  // For poll(2) and friends, rounded up, at most one minute so that callers look around now and then.
  int left_ms() const {
    if (never()) return 60'000;
    return static_cast<int>(std::min<long long>(60'000, std::chrono::ceil<std::chrono::milliseconds>(left()).count()));
  }
  Deadline sooner(Deadline other) const { return Deadline{std::min(at_, other.at_)}; }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace cohort
