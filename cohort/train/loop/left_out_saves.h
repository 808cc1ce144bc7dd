// Checkpoints that are left out because the one before is still being written: what is said of them, and when it is an alarm.
// Epochs may be shorter than a write, and then nothing is wrong; a write that lasts means a disk that is slow or hangs.
// Owner: CheckpointManager. Threads: one.
#pragma once
#include <bit>

#include "cohort/base/deadline.h"

namespace cohort::train {

class LeftOutSaves {
 public:
  static constexpr int kAlarm = 2;            // left out in a row: with every further step more would be lost
  static constexpr Seconds kLastingWrite{2};  // a checkpoint takes milliseconds, on a busy machine a second

  enum class Say { nothing, note, alarm };

  void submitted(Clock::time_point now) { began_ = now; }
  void written() { in_a_row_ = 0, alarmed_ = false; }

  // Of a row the first is told, then ever more rarely; the alarm once.
  Say add(Clock::time_point now) {
    ++in_a_row_;
    if (in_a_row_ >= kAlarm && !alarmed_ && now - began_ >= kLastingWrite) {
      alarmed_ = true;
      return Say::alarm;
    }
    return in_a_row_ == 1 || (in_a_row_ >= 4 && std::has_single_bit(static_cast<unsigned>(in_a_row_))) ? Say::note : Say::nothing;
  }

  int in_a_row() const { return in_a_row_; }
  Seconds writing_for(Clock::time_point now) const { return now - began_; }

 private:
  int in_a_row_ = 0;
  bool alarmed_ = false;
  Clock::time_point began_{};
};

}  // namespace cohort::train
