// cohort-worker list models|data: what `cohort models` runs, and `cohort data` with plugins.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "cohort/base/command_line.h"
#include "cohort/base/model_sizes.h"
#include "cohort/base/spec_page.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/data/pages.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/plugin.h"
#include "cohort/nn/zoo.h"

namespace cohort::cli::worker {
namespace {

constexpr const char* kModelsHead =
    "# Models and losses\n\n"
    "Written by `cohort models --markdown`.\n";

std::vector<SpecPage> model_pages() {
  SpecPage models{.title = "Models",
                  .about =
                      "For the setting model: name(parameter=value, ..). What is not written and the data set decides is taken from it: "
                      "in, size, classes, out, vocab, and context where its samples are longer.",
                  .rows = {}};
  for (const nn::Architecture* row : nn::architectures())
    models.rows.emplace_back(std::string(row->name), std::string(row->about), row->params());
  SpecPage sizes{.title = "Models of a known size", .about = "One word for a whole spec.", .rows = {}};
  for (const ModelSize& size : kModelSizes)
    sizes.rows.emplace_back(std::string(size.word), fmt::format("{}, {} M parameters", size.spec, size.millions));
  SpecPage losses{.title = "Losses",
                  .about = "For the setting loss; auto takes cross_entropy for classes and tokens, mse for float targets.",
                  .rows = {}};
  for (const nn::LossKind* row : nn::loss_kinds()) losses.rows.emplace_back(std::string(row->name), std::string(row->about), row->params());
  return {models, sizes, losses};
}

int list_main(int argc, char** argv) {
  std::string what, name;
  std::vector<std::string> plugins;
  bool markdown = false;
  CLI::App app{"what `cohort models` and `cohort data` run", "cohort-worker list"};
  app.add_option("what", what)->required()->check(CLI::IsMember({"models", "data"}));
  app.add_option("--name", name);
  app.add_option("--plugin", plugins)->expected(1)->take_all();
  app.add_flag("--markdown", markdown);
  if (!parse_command_line(app, argc, argv)) return 0;
  nn::load_plugins(plugins);
  const bool models = what == "models";
  const std::vector<SpecPage> all = models ? model_pages() : data::spec_pages();
  const char* const head = models ? kModelsHead : data::kPagesHead;
  fmt::print("{}", !name.empty() ? row_text(all, name) : markdown ? page_markdown(head, all) : page_text(all));
  std::fflush(stdout);
  return 0;
}

}  // namespace

Task list_task() { return {"list", "what `cohort models` and `cohort data` run", list_main}; }

}  // namespace cohort::cli::worker
