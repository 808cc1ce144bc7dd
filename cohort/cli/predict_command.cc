// cohort predict: pictures, folders and tables through what a run has learned.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/data/limits.h"
#include "cohort/launch/worker_program.h"

namespace cohort::cli {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort predict runs/fashion boot.png shirt.jpg\n"
    "  cohort predict runs/fashion/checkpoints/step-00004690 boot.png --top 1 --json\n"
    "  cohort predict runs/pets new_pictures/ --out predictions.csv\n"
    "  cohort predict runs/houses houses.csv --out predictions.csv\n"
    "  cohort predict runs/fashion --data 'fashion_mnist(split=test)'\n\n"
    "A folder holds pictures, or a subfolder of them for each class: then the accuracy is printed too. A table (.csv, .csv.gz) has the "
    "columns\n"
    "of the training set; with those to learn, accuracy or error are printed too. Of both come lines of CSV: row or file, prediction and\n"
    "probability, or the values of a regression.\n\n"
    "PNG and JPEG files are resized to the size and the channels the model was trained on. Exit status 1 when some file is no picture; "
    "the\n"
    "others are classified all the same.\n";

int run(int argc, char** argv) {
  std::string path, data, out;
  std::vector<std::string> files, plugins;
  int top = 3;
  std::int64_t limit = 0;
  data::InputLimits limits;
  bool json = false;
  CLI::App app{"predict with a trained model", "cohort predict"};
  app.footer(kExamples);
  app.add_option("checkpoint", path, "folder of a run (its newest whole checkpoint) or of one checkpoint")->required();
  app.add_option("files", files, "PNG and JPEG pictures, folders of them, tables (.csv, .csv.gz)");
  app.add_option("--out", out, "file for the predictions of folders and tables, as CSV; else they are printed");
  app.add_option("--plugin", plugins, "library with the run's model; none: those the run was trained with")->expected(1)->take_all();
  app.add_option("--top", top, "classes to show for each picture")->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--data", data, "classify a data set instead and print the accuracy, for instance 'fashion_mnist(split=test)'");
  app.add_option("--limit", limit, "only the first so many samples of --data, a folder or a table; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  const auto limit_option = [&](const char* name, std::int64_t& value, const char* what) {
    app.add_option(name, value, what)->capture_default_str()->check(CLI::PositiveNumber);
  };
  limit_option("--max-pixels", limits.max_pixels, "pixels of one picture (data.max_pixels)");
  limit_option("--max-scans", limits.max_scans, "passes of a progressive JPEG (data.max_scans)");
  limit_option("--max-inflate-ratio", limits.max_inflate_ratio, "bytes of one byte of gzip (data.max_inflate_ratio)");
  app.add_flag("--json", json, "one JSON object a line");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (files.empty() && data.empty())
    throw_failure(Kind::usage, "nothing to classify or predict: name pictures, folders or tables, or a data set with --data");
  if (!std::filesystem::is_directory(path))
    throw_failure(Kind::usage, "there is no folder {}: name a run's folder or a checkpoint's", path);
  std::vector<std::string> args{"predict", path, "--top", std::to_string(top), "--limit", std::to_string(limit)};
  if (!data.empty()) args.insert(args.end(), {"--data", data});
  if (!out.empty()) args.insert(args.end(), {"--out", out});
  for (const auto& [name, value] : {std::pair{"--max-pixels", limits.max_pixels}, std::pair{"--max-scans", limits.max_scans},
                                    std::pair{"--max-inflate-ratio", limits.max_inflate_ratio}})
    args.insert(args.end(), {name, std::to_string(value)});
  if (json) args.emplace_back("--json");
  if (::isatty(STDOUT_FILENO) == 1) args.emplace_back("--terminal");
  for (const auto& plugin : plugins) args.insert(args.end(), {"--plugin", plugin});
  args.emplace_back("--");
  args.insert(args.end(), files.begin(), files.end());
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  options.ranks = "1";
  options.ranks_given = true;
  return launch::run_workers(std::move(options), args);
}

}  // namespace

Command predict_command() { return {"predict", "predict with a trained model: pictures, folders, tables", run}; }

}  // namespace cohort::cli
