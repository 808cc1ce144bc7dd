// A timeline of hvd's operations on one rank, as Horovod's users know it: a Chrome trace with one row per name, each operation as
// NEGOTIATE_<OP> from its submission until all ranks agree, then <OP> until it is done, and CYCLE_START marks when asked for.
// Times are microseconds since start(). The file is complete after stop(), and readable (each event a line) before it.
// Owner: the runtime. Threads: any; off, an event costs one load. Failure: start() throws Kind::system naming the path, and Kind::usage
// when one is running; a disk that fills up later ends the timeline with a warning.
#pragma once
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cohort/queue/queue.h"

namespace cohort::python {

class Timeline {
 public:
  void start(const std::string& path, bool mark_cycles);
  void stop();  // nothing to do when none is running
  void on_event(const queue::Event& event) noexcept {
    if (on_.load(std::memory_order_relaxed)) record(event);
  }

 private:
  struct Row {
    int pid = 0;
    bool negotiating = false, running = false;
  };
  void record(const queue::Event& event) noexcept;
  Row& row(const std::string& name);
  void line(const std::string& text);
  void end();  // mutex_ held

  std::atomic<bool> on_{false};
  std::mutex mutex_;
  // ---- guarded by mutex_
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
  std::string path_;
  bool mark_cycles_ = false, first_ = true;
  Clock::time_point began_;
  std::unordered_map<std::string, Row> rows_;
};

}  // namespace cohort::python
