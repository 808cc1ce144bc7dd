// The options of `cohort run` and `cohort agent`, a row each; `cohort train` offers some of the rows as well (cli/launch_flags.h).
// Owner: constants. Threads: any. Failure: Kind::usage naming the option.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "cohort/launch/options.h"

namespace cohort::launch {

struct OptionRow {
  std::string_view names;  // "-n --ranks -np": a short first one is shown with the second, a long one alone; all are understood
  std::string_view value;  // what help calls it; empty: a flag
  std::string_view about;  // for help; {} is where the choices go. Empty: understood, not shown
  void (*apply)(LaunchOptions&, const std::string&);
  std::string (*choices)() = nullptr;  // the names that a registry knows
};

std::span<const OptionRow> option_rows();
const OptionRow* find_option(std::string_view name);  // by any of its names; null: there is none
std::string about_text(const OptionRow& row);
void apply_option(LaunchOptions& options, const OptionRow& row, std::string_view name, const std::string& value);
// Why there is no such option here, or the nearest one.
[[noreturn]] void refuse_option(std::string_view name);

}  // namespace cohort::launch
