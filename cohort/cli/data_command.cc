// cohort data: the data sets, transforms and samplers there are, with their parameters.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "cohort/base/command_line.h"
#include "cohort/base/spec_page.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/list_in_worker.h"
#include "cohort/data/pages.h"

namespace cohort::cli {
namespace {

int run(int argc, char** argv) {
  std::string name;
  std::vector<std::string> plugins;
  bool markdown = false;
  CLI::App app{"data sets, transforms and samplers with their parameters", "cohort data"};
  app.footer("\nexamples:\n  cohort data\n  cohort data csv\n");
  app.add_option("name", name, "only this one");
  app.add_option("--plugin", plugins, "library with data sets of your own, listed too")->expected(1)->take_all();
  app.add_flag("--markdown", markdown, "as the reference page docs/datasets.md");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!plugins.empty()) return list_in_worker("data", name, markdown, plugins);
  const std::vector<SpecPage> all = data::spec_pages();
  fmt::print("{}", !name.empty() ? row_text(all, name) : markdown ? page_markdown(data::kPagesHead, all) : page_text(all));
  return 0;
}

}  // namespace

Command data_command() { return {"data", "data sets, transforms and samplers with their parameters", run}; }

}  // namespace cohort::cli
