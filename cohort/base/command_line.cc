#include "cohort/base/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cohort/base/error.h"

namespace cohort {

bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}; `{} --help` lists the options", error.what(), app.get_name());
  }
}

}  // namespace cohort
