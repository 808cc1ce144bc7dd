#include "cohort/cli/cli.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::cli {
namespace {

int help(std::span<const Command> table, std::FILE* out) {
  fmt::print(out, "cohort: training together, on one machine or many\n\nusage: cohort <command> [options]\n\n");
  for (const Command& c : table) fmt::print(out, "  {:<10} {}\n", c.name, c.about);
  fmt::print(out, "\n`cohort <command> --help` tells more. `cohort --version` prints the version.\n");
  return out == stdout ? 0 : launch::kExitUsage;
}

// What was printed must have been written: a full disk behind a redirection is a failure. Another failure keeps its status.
int flushed(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "cohort: what it printed could not be written ({}); is the disk full, or its reader gone?\n", std::strerror(errno));
  return status == 0 ? launch::kExitFailure : status;
}

}  // namespace

int dispatch(std::span<const Command> table, int argc, char** argv) {
  if (argc < 2) return help(table, stderr);
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") return flushed(help(table, stdout));
  if (word == "--version" || word == "version") return fmt::print("cohort {}\n", COHORT_VERSION), flushed(0);
  for (const Command& c : table) {
    if (c.name != word) continue;
    try {
      return flushed(c.run(argc - 1, argv + 1));
    } catch (const Failure& failure) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort {}: {}\n", word, terminal_text(failure.what()));
      return failure.kind() == Kind::usage ? launch::kExitUsage : launch::kExitFailure;
    } catch (const std::exception& other) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort {}: {}\n", word, terminal_text(other.what()));
      return launch::kExitFailure;
    }
  }
  std::vector<std::string_view> names;
  for (const Command& c : table) names.push_back(c.name);
  const std::string_view hint = nearest(word, names);
  fmt::print(stderr, "cohort: there is no command '{}'{}; `cohort --help` lists them\n", printable(word),
             hint.empty() ? "" : fmt::format(", did you mean '{}'?", hint));
  return launch::kExitUsage;
}

}  // namespace cohort::cli
