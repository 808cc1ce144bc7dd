// cohort-worker plugins: loads libraries as a rank does, so that what is wrong with one is said before ranks start.
#include <CLI/CLI.hpp>

#include "cohort/base/command_line.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/nn/plugin.h"

namespace cohort::cli::worker {
namespace {

int plugins_main(int argc, char** argv) {
  std::vector<std::string> paths;
  CLI::App app{"loads plugins, and says what is wrong with them", "cohort-worker plugins"};
  app.add_option("paths", paths);
  if (!parse_command_line(app, argc, argv)) return 0;
  nn::load_plugins(paths);
  return 0;
}

}  // namespace

Task plugins_task() { return {"plugins", "loads plugins, and says what is wrong with them", plugins_main}; }

}  // namespace cohort::cli::worker
