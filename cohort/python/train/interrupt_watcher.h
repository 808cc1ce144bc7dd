// Ctrl-C and notices to leave while the thread that trains waits in C++, where Python's own handlers cannot run. Python writes the number
// of every signal that it handles into a pipe at once (signal.set_wakeup_fd); a thread here reads it.
//   InterruptWatcher watcher({fd, {SIGINT, SIGTERM}}, {.interrupt = [&] { comm.abort(..); }, .leave = [&](const std::string& why) {
//   trainer.leave(why); }});
// Owner: a run. Threads: one of its own, which calls the functions; they must not wait for it. Failure: Kind::system.
#pragma once
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/fd.h"

namespace cohort::python {

struct OnSignal {
  std::function<void()> interrupt;                // SIGINT
  std::function<void(const std::string&)> leave;  // SIGTERM, SIGUSR1: the signal's name
  std::function<void()> status;                   // SIGQUIT
};

struct SignalPipe {
  int fd = -1;               // the end to read from, borrowed; below 0: nothing is watched, the run is not on Python's main thread
  std::vector<int> signals;  // those to act on: for others the program has handlers of its own
};

class InterruptWatcher {
 public:
  InterruptWatcher(SignalPipe pipe, OnSignal calls);
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

 private:
  void watch() const;
  void handle(unsigned char number) const;

  const SignalPipe pipe_;
  const OnSignal calls_;
  Fd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace cohort::python
