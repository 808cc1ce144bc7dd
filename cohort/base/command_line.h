// The end of every command that reads its options with CLI11: --help, mistakes, and their exit statuses are the same everywhere.
// Owner: everyone. Threads: the main one. Failure: Kind::usage with the parser's sentence and where the options are listed.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace cohort {

// Fills the variables that the options are bound to. False: --help was asked for and has been printed, nothing else is to be done.
bool parse_command_line(CLI::App& app, int argc, char** argv);

// For the sentence about an option that does not exist: ", it is called --backend now", ", did you mean --ranks?" or nothing.
// known: all names that this command has.
std::string option_hint(std::string_view name, std::span<const std::string_view> known);

}  // namespace cohort
