// From the words on the command line to a program that can be started: found in PATH, through Python where that is meant, or refused with
// one clear line. Threads: any. Failure: NoProgram with the line and the exit status shells use (127 not found, 126 not executable).
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/cli/run_options.h"
#include "cohort/group/place.h"

namespace cohort::cli {

struct Program {
  std::string path;               // what is executed
  std::vector<std::string> argv;  // with argv[0]
};

struct NoProgram : std::runtime_error {
  NoProgram(const std::string& what, int code) : std::runtime_error(what), exit_code(code) {}
  int exit_code;
};

Program find_program(const RunOptions& options, const group::Environment& environment);

}  // namespace cohort::cli
