// cohort-worker generate: what `cohort generate` runs, in one process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/terminal_text.h"
#include "cohort/cli/worker/tasks.h"
#include "cohort/train/loop/generator.h"

namespace cohort::cli::worker {
namespace {

struct GenerateTaskOptions {
  std::string path;
  std::vector<std::string> plugins;
  train::GenerateOptions text;
  std::uint64_t texts = 1;
  bool json = false, terminal = false;  // terminal: what is printed goes to one
};

void generate(const GenerateTaskOptions& w) {
  const train::Generator generator(w.path, w.plugins);
  for (std::uint64_t i = 0; i < w.texts; ++i) {
    train::GenerateOptions options = w.text;
    options.text = i;
    const std::string text = generator.generate(options);
    if (w.json) {
      const nlohmann::ordered_json line{{"prompt", options.prompt}, {"seed", options.seed}, {"number", i}, {"text", text}};
      fmt::print("{}\n", line.dump(-1, ' ', w.terminal, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("{}{}\n", i > 0 ? "\n" : "", w.terminal ? terminal_text(text) : text);
    }
  }
  std::fflush(stdout);
}

int generate_main(int argc, char** argv) {
  GenerateTaskOptions w;
  CLI::App app{"what `cohort generate` runs", "cohort-worker generate"};
  app.add_option("checkpoint", w.path)->required();
  app.add_option("--prompt", w.text.prompt)->required();
  app.add_option("--tokens", w.text.tokens);
  app.add_option("--temperature", w.text.sampling.temperature);
  app.add_option("--top-k", w.text.sampling.top_k);
  app.add_option("--top-p", w.text.sampling.top_p);
  app.add_option("--seed", w.text.seed);
  app.add_option("--texts", w.texts);
  app.add_option("--plugin", w.plugins)->expected(1)->take_all();
  app.add_flag("--json", w.json);
  app.add_flag("--terminal", w.terminal);
  if (!parse_command_line(app, argc, argv)) return 0;
  generate(w);
  return 0;
}

}  // namespace

Task generate_task() { return {"generate", "what `cohort generate` runs", generate_main}; }

}  // namespace cohort::cli::worker
