// cohort doctor [--json] [--check-build]
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/bench/doctor/doctor.h"
#include "cohort/bench/programs.h"
#include "cohort/cli/cli.h"

namespace cohort::cli {
namespace {

using namespace bench::doctor;

std::string coloured(const Finding& f) {
  const auto text = format_finding(f);
  static constexpr std::string_view kColours[] = {"\033[32m", "\033[36m", "\033[33m", "\033[31m"};
  const auto name = level_name(f.level);
  return fmt::format("{}{}\033[0m{}", kColours[static_cast<int>(f.level)], name, text.substr(name.size()));
}

void print_json(const Findings& findings) {
  for (const Finding& f : findings) {
    const nlohmann::ordered_json line{{"level", level_name(f.level)}, {"topic", f.topic}, {"text", f.text}, {"advice", f.advice}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

// The short list that horovodrun --check-build made people expect.
int check_build() {
  const auto box = [](bool there) { return there ? "[X]" : "[ ]"; };
  fmt::print("Cohort v{}:\n\nAvailable transports:\n    [X] shared memory\n    [X] TCP\n\n", COHORT_VERSION);
  fmt::print("Found beside it:\n    {} PyTorch\n    {} Open MPI, to compare with\n", box(!bench::python_with_torch().empty()),
             box(!bench::bundled_program("openmpi_bench").empty()));
  return 0;
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app{"says what this machine has, what will be slow or fail, and what to do", "cohort doctor"};
  bool json = false, build = false;
  app.add_flag("--json", json, "one JSON object a line: level, topic, text, advice");
  app.add_flag("--check-build", build, "only what was built and found, as a list of boxes");
  app.footer("Exit status: 0, or 1 when a FAIL line says that jobs cannot run here.");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (build) return check_build();
  const auto findings = examine();
  if (json) return print_json(findings), exit_status(findings);
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  for (const Finding& f : findings) fmt::print("{}", colour ? coloured(f) : format_finding(f));
  fmt::print("\n{}", format_summary(findings));
  return exit_status(findings);
}

Command doctor_command() { return {"doctor", "what this machine has, what will be slow or fail, what to do", run}; }

}  // namespace cohort::cli
