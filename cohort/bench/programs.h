// Finds the programs that the bench starts: other implementations, Python, Open MPI.
// Threads: the main one (the environment is read). Failure: an empty path.
#pragma once
#include <string>
#include <string_view>

namespace cohort::bench {

// Where an executable of this name is: a path, or empty. A name with a slash is taken as it is.
std::string find_executable(std::string_view name);
// A file that comes with cohort: beside the running program, or in the installed ../libexec/cohort. Empty when absent.
std::string bundled_program(std::string_view name);
// A Python that has torch: $COHORT_PYTHON, $VIRTUAL_ENV, the one `make build` recorded, a .venv above the program, python3. Empty when none
// has it.
std::string python_with_torch();

}  // namespace cohort::bench
