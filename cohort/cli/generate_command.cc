// cohort generate: text from a language model that a run has learned.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/cli/cli.h"
#include "cohort/launch/worker_program.h"
#include "cohort/train/sampling.h"

namespace cohort::cli {
namespace {

constexpr const char* kExamples =
    "\nexamples:\n"
    "  cohort generate runs/gpt --prompt 'The king'\n"
    "  cohort generate runs/gpt --prompt 'The king' --tokens 300 --temperature 0.8 --top-k 40 --seed 7\n"
    "  cohort generate runs/headlines --prompt 'police say' --tokens 6 --temperature 0 --json\n\n"
    "For runs trained on text(..), by bytes, characters or byte pairs, and on ngrams(..), by words. The same seed gives the same text.\n";

int run(int argc, char** argv) {
  std::string path, prompt;
  std::vector<std::string> plugins;
  std::int64_t tokens = 100, texts = 1;
  std::uint64_t seed = 1;
  train::SamplingOptions sampling;
  bool json = false;
  CLI::App app{"text from a language model", "cohort generate"};
  app.footer(kExamples);
  app.add_option("checkpoint", path, "folder of a run (its newest whole checkpoint) or of one checkpoint")->required();
  app.add_option("--prompt", prompt, "what the text begins with")->required();
  app.add_option("--tokens", tokens, "tokens to add: bytes, characters, byte pairs or words, as the model was trained")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--temperature", sampling.temperature, "0: always the likeliest token; above 1: more variety")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0: from all")->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "draw from the fewest likeliest tokens with this probability together")->capture_default_str();
  app.add_option("--seed", seed, "the same seed, the same text")->capture_default_str();
  app.add_option("--texts", texts, "so many texts, each drawn anew")->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--plugin", plugins, "library with the run's model; none: those the run was trained with")->expected(1)->take_all();
  app.add_flag("--json", json, "one JSON object a line");
  if (!parse_command_line(app, argc, argv)) return 0;
  train::check(sampling);
  if (!std::filesystem::is_directory(path))
    throw_failure(Kind::usage, "there is no folder {}: name a run's folder or a checkpoint's", path);
  std::vector<std::string> args{"generate",
                                path,
                                "--prompt=" + prompt,
                                "--tokens",
                                std::to_string(tokens),
                                "--temperature",
                                fmt::format("{}", sampling.temperature),
                                "--top-k",
                                std::to_string(sampling.top_k),
                                "--top-p",
                                fmt::format("{}", sampling.top_p),
                                "--seed",
                                std::to_string(seed),
                                "--texts",
                                std::to_string(texts)};
  if (json) args.emplace_back("--json");
  if (::isatty(STDOUT_FILENO) == 1) args.emplace_back("--terminal");
  for (const auto& plugin : plugins) args.insert(args.end(), {"--plugin", plugin});
  launch::LaunchOptions options = launch::default_options(group::read_environment());
  options.ranks = "1";
  options.ranks_given = true;
  return launch::run_workers(std::move(options), args);
}

}  // namespace

Command generate_command() { return {"generate", "text from a trained language model", run}; }

}  // namespace cohort::cli
