// The `cohort` program: one binary, one file per subcommand.
// To add a subcommand `foo`: write cohort/cli/foo_command.cc with `Command cohort::cli::foo_command()`; the build finds the file and
// puts its row into the table (no list to edit, no self-registering statics).
// Threads: the main thread. Failure: a subcommand throws Failure; main() prints `cohort foo: what` and exits 2 for Kind::usage, else 1.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace cohort::cli {

struct Command {
  std::string_view name;              // the word after `cohort`
  std::string_view about;             // one line for `cohort --help`
  int (*run)(int argc, char** argv);  // argv[0] is the subcommand's name; returns the exit status
};

// Every subcommand compiled in, by name. Generated from the *_command.cc files of this module.
std::vector<Command> commands();

// The whole program: picks the subcommand, turns a Failure into one line on stderr and an exit status.
int dispatch(std::span<const Command> table, int argc, char** argv);

}  // namespace cohort::cli
