// Options of `cohort run` in other commands: the same names, checks and texts (launch/option_table.h).
// Threads: the main one. Failure: Kind::usage, "--name: what is wrong with its value".
#pragma once
#include <initializer_list>
#include <string_view>

#include "cohort/launch/options.h"

namespace CLI {
class App;
}

namespace cohort::cli {

// Each by any of its names; what is given is written into options while app parses.
void add_launch_flags(CLI::App& app, launch::LaunchOptions& options, std::initializer_list<std::string_view> names);

}  // namespace cohort::cli
