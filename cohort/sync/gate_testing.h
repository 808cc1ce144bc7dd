// What tests of ranks that meet at any time wait for: so many arrivals. Bounded: a test that would hang fails.
// Owner: a test. Threads: any.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "cohort/base/slowdown.h"

namespace cohort::sync {

class Gate {
 public:
  void arrive() {
    const std::lock_guard lock(mutex_);
    ++arrived_;
    changed_.notify_all();
  }
  bool await(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60) * slowdown(), [&] { return arrived_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
};

}  // namespace cohort::sync
