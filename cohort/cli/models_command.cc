// cohort models: the models and losses there are, with their parameters. Their tables are in cohort-worker, which links torch.
#include <CLI/CLI.hpp>

#include "cohort/base/command_line.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/list_in_worker.h"

namespace cohort::cli {
namespace {

int run(int argc, char** argv) {
  std::string name;
  std::vector<std::string> plugins;
  bool markdown = false;
  CLI::App app{"models and losses with their parameters", "cohort models"};
  app.footer("\nexamples:\n  cohort models\n  cohort models resnet18\n");
  app.add_option("name", name, "only this one");
  app.add_option("--plugin", plugins, "library with models and losses of your own, listed too")->expected(1)->take_all();
  app.add_flag("--markdown", markdown, "as the reference page docs/models.md");
  if (!parse_command_line(app, argc, argv)) return 0;
  return list_in_worker("models", name, markdown, plugins);
}

}  // namespace

Command models_command() { return {"models", "models and losses with their parameters", run}; }

}  // namespace cohort::cli
