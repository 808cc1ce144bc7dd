// Turns SIGTERM and SIGUSR1 into a preemption notice: the trainer gets it and leaves after a step. Made before any other thread,
// SigquitStatus's too. Where a lost launcher is such a notice (launch/child.h arranges that) nobody reads what this process prints any
// more, and it ends itself after kExitLimit. Owner: a task. Threads: one of its own. Failure: Kind::system.
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
enum class OnParentExit {
  exit_soon,  // it was the launcher: its end is why the notice came
  ignore,     // nothing: any shell or scheduler may have started this process and left
};

// From here on a notice waits for a PreemptionHandler to take it, and ends nobody. The launcher arranges that before a rank of its own
// begins (WorkerTraits::preemptible); for one that somebody else started, the first thing a task does.
void block_preemption_signals();

class PreemptionHandler {
 public:
  explicit PreemptionHandler(OnParentExit on_parent_exit);
  ~PreemptionHandler();
  PreemptionHandler(const PreemptionHandler&) = delete;
  PreemptionHandler& operator=(const PreemptionHandler&) = delete;
  // On this object's thread, with the signal's name; at once for one that came before. Empty: none any more.
  void set_callback(std::function<void(const std::string&)> callback);

 private:
  void wait();
  void check_parent();

  static constexpr unsigned kExitLimit = 8;  // seconds, to end the step and save
  const OnParentExit on_parent_exit_;
  const int launcher_;
  const std::vector<Fd> listeners_;  // exit_soon: to our own output. Nothing printed between the launcher's end and the notice may fail
  std::mutex mutex_;
  std::function<void(const std::string&)> callback_;  // guarded by mutex_
  std::string pending_;                               // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A callback for as long as this object lives.
class ScopedPreemptionCallback {
 public:
  ScopedPreemptionCallback(PreemptionHandler& handler, std::function<void(const std::string&)> callback) : handler_(handler) {
    handler_.set_callback(std::move(callback));
  }
  ~ScopedPreemptionCallback() { handler_.set_callback({}); }
  ScopedPreemptionCallback(const ScopedPreemptionCallback&) = delete;
  ScopedPreemptionCallback& operator=(const ScopedPreemptionCallback&) = delete;

 private:
  PreemptionHandler& handler_;
};

}  // namespace cohort::cli::worker
