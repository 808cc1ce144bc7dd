#include "cohort/cli/launch_flags.h"

#include <CLI/CLI.hpp>
#include <string>

#include "cohort/base/text.h"
#include "cohort/launch/option_table.h"

namespace cohort::cli {
namespace {

// CLI11 reads -np as -n p and refuses to know it as an option.
std::string names_for_cli11(const launch::OptionRow& row) {
  std::string names;
  for (const auto name : split(row.names, ' '))
    if (name.starts_with("--") || name.size() == 2) names += (names.empty() ? "" : ",") + std::string(name);
  return names;
}

}  // namespace

void add_launch_flags(CLI::App& app, launch::LaunchOptions& options, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const launch::OptionRow& row = *launch::find_option(name);
    const auto apply = [&options, &row, name](const std::string& value) { launch::apply_option(options, row, name, value); };
    if (row.value.empty())
      app.add_flag_callback(
          names_for_cli11(row), [apply] { apply(""); }, launch::about_text(row));
    else
      app.add_option_function<std::string>(names_for_cli11(row), apply, launch::about_text(row))->type_name(std::string(row.value));
  }
}

}  // namespace cohort::cli
