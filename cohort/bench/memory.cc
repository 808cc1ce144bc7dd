#include "cohort/bench/memory.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/command_line.h"
#include "cohort/base/error.h"
#include "cohort/base/model_sizes.h"
#include "cohort/base/text.h"
#include "cohort/bench/progress_line.h"
#include "cohort/bench/rounds.h"
#include "cohort/launch/worker_program.h"
#include "cohort/observe/table.h"

namespace cohort::bench {
namespace {

constexpr Seconds kTimeLimit{600};  // for one start: a few steps of a large model, perhaps on a busy machine

constexpr const char* kFooter =
    "\nexamples:\n"
    "  cohort bench memory -n 2 --json\n"
    "  cohort bench memory -n 2,4 --stages 0,3 --batch 4\n\n"
    "fp32 Adam keeps 16, 8 + 8/N, 4 + 12/N and 16/N bytes a parameter in stages 0 to 3; `buckets` are the gradients in flight and the\n"
    "parameters gathered for the block that runs. docs/plan.md says how each is measured.\n";

struct MemoryOptions {
  std::string model = "gpt-50m", optimizer = "adam(lr=1e-4)";
  std::vector<int> ranks, stages;
  std::int64_t batch = 1;
  int steps = 3;
  bool json = false;
};

std::vector<int> numbers(const std::string& list, const char* option, int low, int high) {
  std::vector<int> all;
  for (const auto part : split(list, ',')) {
    const auto n = parse_int(trim(part));
    if (n < low || n > high) throw_failure(Kind::usage, "{} {}: between {} and {}", option, n, low, high);
    all.push_back(static_cast<int>(n));
  }
  if (all.empty()) throw_failure(Kind::usage, "{}: give at least one", option);
  return all;
}

// nullopt: --help was printed.
std::optional<MemoryOptions> parse(int argc, char** argv) {
  MemoryOptions o;
  std::string ranks = "2", stages = "0,1,2,3";
  CLI::App app{"what a rank holds in memory, beside the formula", "cohort bench memory"};
  app.option_defaults()->always_capture_default();
  app.footer(kFooter);
  app.add_option("-n,--ranks", ranks, "ranks to start, a list");
  app.add_option("--stages", stages, "ZeRO stages, a list: 0 shards nothing");
  app.add_option("--model", o.model, "a model of the zoo that reads tokens: gpt-50m, gpt(vocab=64, d=64, heads=2, layers=2)");
  app.add_option("--optimizer", o.optimizer, "sgd, adam(lr=1e-4), ..");
  app.add_option("--rule", [](const auto&) -> bool { throw_failure(Kind::usage, "--rule is called --optimizer now"); })->group("");
  app.add_option("--batch", o.batch, "samples of one rank and step")->check(CLI::Range(1, 1'000'000));
  app.add_option("--steps", o.steps, "before anything is measured")->check(CLI::Range(1, 1'000'000));
  app.add_flag("--json", o.json, "one JSON object a line");
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  o.ranks = numbers(ranks, "-n", 1, 4096);
  o.stages = numbers(stages, "--stages", 0, 3);
  return o;
}

std::vector<MemoryRow> measure(const MemoryOptions& o, int ranks, int stage) {
  const auto make = [&](const std::string& path) {
    return CommandLine{{std::filesystem::read_symlink("/proc/self/exe").string(), "run", "-n", std::to_string(ranks), "--",
                        launch::find_worker(), "bench-memory", "--model", model_spec_of(o.model), "--optimizer", o.optimizer, "--stage",
                        std::to_string(stage), "--batch", std::to_string(o.batch), "--steps", std::to_string(o.steps), "--out", path},
                       {{"OMP_NUM_THREADS", "1"}}};
  };
  return parse_memory_lines(run_and_read(make, Deadline::in(kTimeLimit), fmt::format("stage {}", stage), ranks));
}

}  // namespace

std::vector<MemoryRow> parse_memory_lines(std::string_view text) {
  std::vector<MemoryRow> rows;
  for (const auto line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("class") || !j.contains("formula_bytes") || !j.contains("measured_bytes"))
      throw_failure(Kind::corrupt, "a worker wrote '{}', which has no bytes of a class", printable(line));
    rows.push_back({j.value("stage", 0), j.value("ranks", 0), j["class"], j["formula_bytes"], j["measured_bytes"]});
  }
  return rows;
}

std::string json_line(const MemoryRow& r) {
  return nlohmann::ordered_json{{"stage", r.stage},
                                {"ranks", r.ranks},
                                {"class", r.what},
                                {"formula_bytes", static_cast<std::int64_t>(r.formula)},
                                {"measured_bytes", static_cast<std::int64_t>(r.measured)}}
      .dump();
}

std::string memory_table(const std::vector<MemoryRow>& rows) {
  constexpr double kMiB = 1024.0 * 1024;
  observe::Table table{
      .columns = {{"stage"}, {"ranks"}, {"class", "", observe::Align::left}, {"formula", "MiB"}, {"measured", "MiB"}, {"off", "%"}}};
  for (const auto& r : rows)
    table.add({std::to_string(r.stage), std::to_string(r.ranks), r.what, observe::cell(r.formula / kMiB), observe::cell(r.measured / kMiB),
               fmt::format("{:+.1f}", 100 * r.off())});
  return observe::table_text(table);
}

int run_memory(int argc, char** argv) {
  const auto o = parse(argc, argv);
  if (!o) return 0;
  std::vector<MemoryRow> all;
  ProgressLine progress(ProgressLine::Elsewhere::silent);
  std::size_t done = 0;
  for (const int ranks : o->ranks) {
    for (const int stage : o->stages) {
      const auto starts = static_cast<double>(o->ranks.size() * o->stages.size());
      progress.show(fmt::format("{}, stage {} on {} ranks", o->model, stage, ranks), static_cast<double>(done++) / starts);
      const auto rows = measure(*o, ranks, stage);
      progress.clear();
      for (const auto& row : rows)
        if (o->json) fmt::print("{}\n", json_line(row));
      std::fflush(stdout);
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  if (!o->json) fmt::print("{}", memory_table(all));
  return 0;
}

}  // namespace cohort::bench
