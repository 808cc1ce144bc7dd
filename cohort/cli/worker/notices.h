// Turns SIGTERM and SIGUSR1 into a notice that this worker is to leave: whoever trains hears of it and leaves after a step. Made before any
// other thread, as Asked. A launcher that is lost is such a notice, too (run_child.h sees to that); then nobody reads what this process
// prints, and it ends itself after kOrphanLimit. Owner: a task. Threads: one of its own. Failure: Kind::system.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/fd.h"

namespace cohort::cli::worker {

class Notices {
 public:
  Notices();
  ~Notices();
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;
  // On this object's thread, with the signal's name; at once for one that came before. Empty: nobody is told any more.
  void tell(std::function<void(const std::string&)> whom);

 private:
  void wait();
  void look_for_launcher();

  static constexpr unsigned kOrphanLimit = 8;  // seconds, to end the step and save
  const int launcher_;
  const std::vector<Fd> listeners_;  // to our own output: what is printed between the launcher's end and the notice must not fail
  std::mutex mutex_;
  std::function<void(const std::string&)> whom_;  // guarded by mutex_
  std::string came_;                              // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cohort::cli::worker
