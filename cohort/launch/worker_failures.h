// The errors of their own with which workers of an elastic job ended, and whether others in their place would end so, too. A crash is one,
// and so is memory that a worker needed and did not get. Any other kill by a signal is none: the machine or a person did that, and the next
// worker may live.
//
// Two findings end the job:
//   - as many workers as it has places failed before any step was committed: the program fails before its first step;
//   - a worker failed with the error of an earlier one, whose place or role it had: it was started after that one had ended, or was in a
//     later membership epoch than that one ever was. An error in the data or the program goes from worker to worker like that. A crash
//     names no error: two count as the same within kCascade only, since a job of days may see one now and then.
// Several that fail at once with the same error, after steps were committed, are one event, as when a file server fails: they are replaced.
// Owner: ElasticJob. Pure. Threads: one. Failure: none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::launch {

struct WorkerFailure {
  int worker = 0;                         // its number: the first one is 0
  std::string name{};                     // "worker 3 (rank 1)"
  int status = 0;                         // of waitpid
  std::uint32_t epoch = 0;                // the last membership epoch that it was in; 0: none
  int started = 0;                        // how many workers had been started when it ended
  std::vector<std::string> last_lines{};  // on stderr
  bool for_memory = false;                // the kernel killed it for want of memory
  Seconds at{0};                          // when it ended, since the job began
};

class WorkerFailures {
 public:
  static constexpr Seconds kCascade{600};  // a replacement has loaded the program, the data and the state, and come to the same place
  explicit WorkerFailures(int places) : places_(places) {}

  // It exited with a status other than 0, aborted itself (an uncaught exception, an assertion), crashed, or needed too much memory.
  static bool is_own(int status, bool for_memory = false);
  // Why no other is to be started; none: others may be.
  std::optional<std::string> add(WorkerFailure failure, bool committed);

 private:
  const int places_;
  std::vector<WorkerFailure> failures_;
};

// Two texts are the same error when they differ in numbers only: pids, addresses, ranks, times.
std::string without_numbers(const std::string& text);

}  // namespace cohort::launch
