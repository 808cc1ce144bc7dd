// From the words on the command line to a program that can be started: found in PATH, through Python where that is meant, or refused
// with one line. Threads: any. Failure: NoProgram with the line and the exit status shells use (127 not found, 126 not executable).
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/group/rank_info.h"

namespace cohort::launch {

struct Program {
  std::string path;               // what is executed
  std::vector<std::string> argv;  // with argv[0]
};

struct NoProgram : std::runtime_error {
  NoProgram(const std::string& what, int code) : std::runtime_error(what), exit_code(code) {}
  int exit_code;
};

struct ProgramRequest {
  std::vector<std::string> command;
  bool module = false;                 // the command is a Python module
  bool no_python = false;              // run a .py file itself even when it is not executable
  std::string python{};                // the interpreter of scripts; empty: COHORT_PYTHON, PYTHON_EXEC, that of the installation, python3
  std::vector<std::string> folders{};  // searched after PATH
};
Program find_program(const ProgramRequest& request, const group::Environment& environment);

// Where the examples are: beside this program (a build folder) and in ../libexec/cohort/examples (installed), as far as they exist.
std::vector<std::string> example_folders();

}  // namespace cohort::launch
