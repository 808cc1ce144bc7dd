// Turns SIGTERM and SIGUSR1 into a notice that this worker is to leave: whoever trains hears of it and leaves after a step. Made before any
// other thread, Asked's too. Where a lost launcher is such a notice (run_child.h sees to that) nobody reads what this process prints then,
// and it ends itself after kOrphanLimit. Owner: a task. Threads: one of its own. Failure: Kind::system.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/fd.h"

namespace cohort::cli::worker {

// What it means that the parent is gone when a notice comes.
enum class Orphan {
  ends_soon,  // it was the launcher: its end is why the notice came
  goes_on,    // nothing: any shell or scheduler may have started this process and left
};

// From here on a notice waits for a Notices to take it, and ends nobody. The launcher sees to that before a rank of its own begins
// (RunOptions::notices); for one that somebody else started, the first thing a task does.
void hold_notices();

class Notices {
 public:
  explicit Notices(Orphan orphan);
  ~Notices();
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;
  // On this object's thread, with the signal's name; at once for one that came before. Empty: nobody is told any more.
  void tell(std::function<void(const std::string&)> whom);

 private:
  void wait();
  void look_for_launcher();

  static constexpr unsigned kOrphanLimit = 8;  // seconds, to end the step and save
  const Orphan orphan_;
  const int launcher_;
  const std::vector<Fd> listeners_;  // ends_soon: to our own output. Nothing printed between the launcher's end and the notice may fail
  std::mutex mutex_;
  std::function<void(const std::string&)> whom_;  // guarded by mutex_
  std::string came_;                              // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Hands notices to somebody as long as it lives.
class Heeding {
 public:
  Heeding(Notices& notices, std::function<void(const std::string&)> whom) : notices_(notices) { notices_.tell(std::move(whom)); }
  ~Heeding() { notices_.tell({}); }
  Heeding(const Heeding&) = delete;
  Heeding& operator=(const Heeding&) = delete;

 private:
  Notices& notices_;
};

}  // namespace cohort::cli::worker
