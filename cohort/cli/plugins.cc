#include "cohort/cli/plugins.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/slowdown.h"
#include "cohort/base/text.h"
#include "cohort/bench/process.h"
#include "cohort/launch/worker_program.h"

namespace cohort::cli {

namespace {
constexpr Seconds kLoadLimit{120};  // torch from a cold network disk takes its time
}

void try_plugins(const std::vector<std::string>& plugins) {
  if (plugins.empty()) return;
  bench::CommandLine worker{{launch::find_worker(), "plugins"}, {}};
  worker.argv.insert(worker.argv.end(), plugins.begin(), plugins.end());
  const bench::Outcome ended = bench::run_process(worker, Deadline::in(kLoadLimit * slowdown()));
  if (ended.ok()) return;
  if (ended.late) throw_failure(Kind::timeout, "the plugins {} did not load within two minutes", fmt::join(plugins, ", "));
  constexpr std::string_view kOwn = "cohort plugins: ";
  for (const auto line : split(ended.err, '\n'))
    if (line.starts_with(kOwn)) throw_failure(Kind::usage, "{}", line.substr(kOwn.size()));
  throw_failure(Kind::usage, "the plugins {} end the program that loads them: {}", fmt::join(plugins, ", "), ended.last_line());
}

void add_plugins(train::SettingsSource& source, const std::vector<std::string>& given) {
  std::vector<std::string> all = train::read_settings(source).plugins;
  all.insert(all.end(), given.begin(), given.end());
  if (all.empty()) return;
  std::vector<std::string> paths;
  for (const auto& one : all) {
    const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(one)).string();
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
  }
  source.sets.push_back(fmt::format("plugins={}", fmt::join(paths, ",")));
  try_plugins(paths);
}

}  // namespace cohort::cli
