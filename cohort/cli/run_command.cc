#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/run_binding.h"
#include "cohort/cli/run_front.h"
#include "cohort/cli/run_hosts.h"
#include "cohort/cli/run_options.h"
#include "cohort/cli/run_program.h"

namespace cohort::cli {
namespace {

int run(int argc, char** argv) {
  LaunchPlan plan;
  plan.environment = group::read_environment();
  plan.options = parse_run({argv + 1, argv + argc}, plan.environment);
  if (plan.options.help) return fmt::print("{}", run_help()), 0;
  return run_planned(std::move(plan));
}

}  // namespace

int run_planned(LaunchPlan plan) {
  for (const auto& [name, value] : plan.options.variables) plan.environment[name] = value;
  try {
    plan.program = find_program(plan.options, plan.environment);
  } catch (const NoProgram& e) {
    fmt::print(stderr, "cohort run: {}\n", e.what());
    return e.exit_code;
  }
  plan.host = look_at_host();
  place_job(plan);
  return run_in_front(std::move(plan));
}

Command run_command() { return {"run", "start a program as several ranks of one job", run}; }

}  // namespace cohort::cli
