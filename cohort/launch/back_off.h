// Pauses between attempts at something that fails at once: 0.1 s, then twice as long each time, 2 s at most.
// Owner: a value. Threads: one.
#pragma once
#include <algorithm>
#include <utility>

#include "cohort/base/deadline.h"

namespace cohort::launch {

class BackOff {
 public:
  static constexpr Seconds kFirst{0.1}, kLongest{2};

  // Failed: a pause begins, unless one is under way. Whether it is the first time in a row.
  bool again() {
    if (!until_.never()) return false;
    const bool first = span_ == Seconds{0};
    span_ = std::clamp(2 * span_, kFirst, kLongest);
    until_ = Deadline::in(span_);
    return first;
  }
  // Whether no pause is under way; ends one that has passed.
  bool ready() {
    if (until_.passed()) until_ = Deadline{};
    return until_.never();
  }
  // Succeeded: the next pause is a first one. Whether it had failed before.
  bool reset() { return std::exchange(span_, Seconds{0}) > Seconds{0}; }

  bool pausing() const { return !until_.never(); }  // since ready() was asked last
  Deadline until() const { return until_; }         // never: no pause

 private:
  Seconds span_{0};
  Deadline until_;
};

}  // namespace cohort::launch
