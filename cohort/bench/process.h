// Runs a program to its end and keeps its output.
// Owner: the caller's thread. The child leads its own process group; whatever of that group is left at its end, at the deadline, or when
// this process dies is ended too. Failure: Kind::system when the program cannot be started; a bad end is in the Outcome, not thrown.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/deadline.h"

namespace cohort::bench {

struct Outcome {
  int status = 0;     // exit status, 128 + n for signal n
  bool late = false;  // ended by us at the deadline
  std::string out;
  std::string err;  // the last part, at most 64 KiB
  bool ok() const { return status == 0 && !late; }
  std::string_view last_line() const;  // the last line of err that is not empty: what to show people
};

struct CommandLine {
  std::vector<std::string> argv;                         // argv[0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> env;  // added to ours
};

Outcome run_process(const CommandLine& program, Deadline deadline);

}  // namespace cohort::bench
