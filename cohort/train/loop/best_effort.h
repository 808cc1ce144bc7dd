// What a run writes about itself beside training (settings, metrics, events, traces) is best effort: a failure is one line of the log that
// names the file and the cause, never the end of the run, and the first success after it is another line.
//   if (settings_.attempt([&] { write_file_atomically(path, text); })) ...
// Owner: RunLogger, MetricOutputs. Threads: one. Failure: none. Nothing collective may run inside: the error of a lost rank must pass.
#pragma once
#include <exception>
#include <string_view>
#include <utility>

#include "cohort/base/log.h"

namespace cohort::train {

class BestEffort {
 public:
  // Literals. what: "config.yaml"; again: "at the next epoch"; empty: there is no second attempt.
  explicit BestEffort(std::string_view what, std::string_view again = {}) : what_(what), again_(again) {}

  template <class Action>
  bool attempt(Action&& action) {
    try {
      std::forward<Action>(action)();
    } catch (const std::exception& problem) {
      warn(problem.what());
      return false;
    }
    if (std::exchange(failed_, false)) log_info("{} can be written again", what_);
    return true;
  }

 private:
  void warn(const char* problem) {
    if (std::exchange(failed_, true)) return;
    log_warning("{}; training goes on without {}{}{}", problem, what_, again_.empty() ? "" : ", and tries again ", again_);
  }

  const std::string_view what_, again_;
  bool failed_ = false;  // the last attempt
};

}  // namespace cohort::train
