// Which of a launcher's children the kernel killed for want of memory. It does so by SIGKILL and tells nobody but its log, which users may
// not read; but it counts the processes of the host that it killed, whatever limit they met (oom_kill of /proc/vmstat, counted before the
// signal). A child that ended by SIGKILL after the count rose is taken for one of them: one child for each that was counted.
// Owner: LocalRanks. Threads: one. Failure: none; a kernel without the count explains nothing.
#pragma once
#include <cstdint>
#include <string>

namespace cohort::launch {

class MemoryKills {
 public:
  explicit MemoryKills(std::string counters = "/proc/vmstat");
  bool explains(int status);  // of waitpid; ask once for each child that ended

 private:
  std::int64_t count() const;  // -1: the kernel has none

  const std::string counters_;
  std::int64_t known_;  // kills of before, and of children that were explained
};

}  // namespace cohort::launch
