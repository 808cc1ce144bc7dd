// Answers SIGQUIT with where this rank is, on stderr, and goes on. Made before any other thread, so that all of them leave the signal to
// the one that waits for it here. Owner: a task. Threads: one of its own. Failure: Kind::system.
#pragma once
#include <atomic>
#include <thread>

#include "cohort/train/loop/rank_status.h"

namespace cohort::cli::worker {

class SigquitStatus {
 public:
  explicit SigquitStatus(const train::RankStatus& status);
  ~SigquitStatus();
  SigquitStatus(const SigquitStatus&) = delete;
  SigquitStatus& operator=(const SigquitStatus&) = delete;

 private:
  void answer();

  const train::RankStatus& status_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cohort::cli::worker
