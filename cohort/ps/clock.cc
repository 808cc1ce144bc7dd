#include "cohort/ps/clock.h"

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort::ps {

Clock::Clock(int workers, std::int64_t at) : at_(static_cast<std::size_t>(workers), at), active_(workers), low_(at) {}

bool Clock::has(int worker) const {
  return worker >= 0 && static_cast<std::size_t>(worker) < at_.size() && at_[static_cast<std::size_t>(worker)] != kGone;
}

std::int64_t& Clock::of(int worker) {
  if (!has(worker)) throw_failure(Kind::usage, "worker {} is none of the {} workers of this clock", worker, active_);
  return at_[static_cast<std::size_t>(worker)];
}

std::int64_t Clock::at(int worker) const { return const_cast<Clock*>(this)->of(worker); }

std::int64_t Clock::fastest() const { return active_ == 0 ? low_ : *std::ranges::max_element(at_); }

std::optional<std::int64_t> Clock::rise() {
  if (active_ == 0) return {};
  std::int64_t low = fastest();
  for (const std::int64_t at : at_)
    if (at != kGone) low = std::min(low, at);
  if (low == low_) return {};
  return low_ = low;
}

std::optional<std::int64_t> Clock::tick(int worker) { return of(worker)++ == low_ ? rise() : std::nullopt; }

void Clock::join(int worker, std::int64_t at) {
  if (worker < 0 || has(worker)) throw_failure(Kind::usage, "worker {} cannot join: it is here, or has no number", worker);
  if (at < low_) throw_failure(Kind::usage, "worker {} cannot join at clock {}: all have ended clock {}", worker, at, low_);
  at_.resize(std::max(at_.size(), static_cast<std::size_t>(worker) + 1), kGone);
  at_[static_cast<std::size_t>(worker)] = at;
  if (++active_ == 1) low_ = at;
}

std::optional<std::int64_t> Clock::leave(int worker) {
  of(worker) = kGone;
  --active_;
  return rise();
}

void Clock::set(std::int64_t at) {
  for (std::int64_t& of_worker : at_)
    if (of_worker != kGone) of_worker = at;
  low_ = at;
}

}  // namespace cohort::ps
