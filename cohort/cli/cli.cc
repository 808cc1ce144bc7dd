#include "cohort/cli/cli.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort::cli {
namespace {

int help(std::span<const Command> table, std::FILE* out) {
  fmt::print(out, "cohort: training together, on one machine or many\n\nusage: cohort <command> [options]\n\n");
  for (const Command& c : table) fmt::print(out, "  {:<10} {}\n", c.name, c.about);
  fmt::print(out, "\n`cohort <command> --help` tells more. `cohort --version` prints the version.\n");
  return out == stdout ? 0 : kExitUsage;
}

// What was printed must have left: on a full disk behind a redirection nothing has been told. A failure keeps its status.
int told(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "cohort: what it printed could not be written ({}); is the disk full, or its reader gone?\n", std::strerror(errno));
  return status == 0 ? kExitFailure : status;
}

}  // namespace

int dispatch(std::span<const Command> table, int argc, char** argv) {
  if (argc < 2) return help(table, stderr);
  const std::string_view word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") return told(help(table, stdout));
  if (word == "--version" || word == "version") return fmt::print("cohort {}\n", COHORT_VERSION), told(0);
  for (const Command& c : table) {
    if (c.name != word) continue;
    try {
      return told(c.run(argc - 1, argv + 1));
    } catch (const Failure& failure) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort {}: {}\n", word, failure.what());
      return failure.kind() == Kind::usage ? kExitUsage : kExitFailure;
    } catch (const std::exception& other) {
      std::fflush(stdout);
      fmt::print(stderr, "cohort {}: {}\n", word, other.what());
      return kExitFailure;
    }
  }
  std::vector<std::string_view> names;
  for (const Command& c : table) names.push_back(c.name);
  const std::string_view hint = nearest(word, names);
  fmt::print(stderr, "cohort: there is no command '{}'{}; `cohort --help` lists them\n", printable(word),
             hint.empty() ? "" : fmt::format(", did you mean '{}'?", hint));
  return kExitUsage;
}

}  // namespace cohort::cli
