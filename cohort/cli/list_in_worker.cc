#include "cohort/cli/list_in_worker.h"

#include <utility>

#include "cohort/launch/worker_program.h"

namespace cohort::cli {

int run_in_worker(const std::vector<std::string>& args) {
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  options.ranks = "1";
  options.ranks_given = true;
  return launch::run_workers(std::move(options), args);
}

int list_in_worker(const std::string& what, const std::string& name, bool markdown, const std::vector<std::string>& plugins) {
  std::vector<std::string> args{"list", what};
  if (markdown) args.emplace_back("--markdown");
  for (const std::string& plugin : plugins) args.insert(args.end(), {"--plugin", plugin});
  if (!name.empty()) args.insert(args.end(), {"--name", name});
  return run_in_worker(args);
}

}  // namespace cohort::cli
