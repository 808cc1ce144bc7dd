#include "cohort/base/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

// Options of earlier versions, of any command.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"--comm", "--backend"}, {"--bits", "--deterministic"}};

void add_names(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
}

// What many try first: a setting as an option of its own.
std::string setting_hint(const CLI::App& app, std::string_view name) {
  if (!name.starts_with("--") || app.get_option_no_throw("--set") == nullptr) return "";
  return fmt::format("; a setting is given as --set {}=..", printable(name.substr(2)));
}

// About the first word that is no option; the parser lists all words that are left, the values too, last ones first.
[[noreturn]] void refuse_extras(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> left = app.remaining(true);
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (option == left.end()) throw_failure(Kind::usage, "{}; `{} --help` lists the options", error.what(), app.get_name());
  const std::string_view name = std::string_view(*option).substr(0, option->find('='));
  std::vector<std::string> names;
  add_names(app, names);
  for (const CLI::App* chosen : app.get_subcommands()) add_names(*chosen, names);
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw_failure(Kind::usage, "there is no option {}{}{}; `{} --help` lists the options", printable(name), option_hint(name, known),
                setting_hint(app, name), app.get_name());
}

}  // namespace

std::string option_hint(std::string_view name, std::span<const std::string_view> known) {
  for (const auto& [was, now] : kRenamed)
    if (was == name && std::find(known.begin(), known.end(), now) != known.end()) return fmt::format(", it is called {} now", now);
  const auto near = nearest(name, known);
  return near.empty() ? "" : fmt::format(", did you mean {}?", near);
}

bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ExtrasError& error) {
    refuse_extras(app, error);
  } catch (const CLI::ParseError& error) {
    throw_failure(Kind::usage, "{}; `{} --help` lists the options", error.what(), app.get_name());
  }
}

}  // namespace cohort
