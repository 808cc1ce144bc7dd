// Answers SIGQUIT with where this rank is, on stderr, and goes on. Made before any other thread, so that all of them leave the signal to
// the one that waits for it here. Owner: a task. Threads: one of its own. Failure: Kind::system.
#pragma once
#include <atomic>
#include <thread>

#include "cohort/train/loop/whereabouts.h"

namespace cohort::cli::worker {

class Asked {
 public:
  explicit Asked(const Whereabouts& where);
  ~Asked();
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

 private:
  void answer();

  const Whereabouts& where_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cohort::cli::worker
