// cohort predict: pictures classified by what a run has learned.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/launch/worker_program.h"

namespace cohort::cli {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort predict runs/fashion boot.png shirt.jpg\n"
    "  cohort predict runs/fashion/checkpoints/step-00004690 boot.png --top 1 --json\n"
    "  cohort predict runs/fashion --data 'fashion_mnist(split=test)'\n\n"
    "PNG and JPEG files are resized to the size and the channels the model was trained on. Exit status 1 when some file is no picture; "
    "the\n"
    "others are classified all the same.\n";

int run(int argc, char** argv) {
  std::string path, data;
  std::vector<std::string> files;
  int top = 3;
  std::int64_t limit = 0;
  bool json = false;
  CLI::App app{"classify pictures with a trained model", "cohort predict"};
  app.footer(kExamples);
  app.add_option("checkpoint", path, "folder of a run (its newest whole checkpoint) or of one checkpoint")->required();
  app.add_option("files", files, "PNG and JPEG pictures");
  app.add_option("--top", top, "classes to show for each picture")->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--data", data, "classify a data set instead and print the accuracy, for instance 'fashion_mnist(split=test)'");
  app.add_option("--limit", limit, "only the first so many samples of --data; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", json, "one JSON object a line");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (files.empty() && data.empty()) throw_failure(Kind::usage, "nothing to classify: name pictures, or a data set with --data");
  if (!std::filesystem::is_directory(path))
    throw_failure(Kind::usage, "there is no folder {}: name a run's folder or a checkpoint's", path);
  std::vector<std::string> args{"predict", path, "--top", std::to_string(top), "--limit", std::to_string(limit)};
  if (!data.empty()) args.insert(args.end(), {"--data", data});
  if (json) args.emplace_back("--json");
  args.emplace_back("--");
  args.insert(args.end(), files.begin(), files.end());
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  options.ranks = "1";
  options.ranks_given = true;
  return launch::run_workers(std::move(options), args);
}

}  // namespace

Command predict_command() { return {"predict", "classify pictures with a trained model", run}; }

}  // namespace cohort::cli
