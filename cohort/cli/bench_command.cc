// cohort bench: the parent of a measurement. Parses, then explains, calibrates, or runs the rounds and prints.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "cohort/base/bytes.h"
#include "cohort/cli/bench_calibrate.h"
#include "cohort/cli/bench_memory.h"
#include "cohort/cli/bench_options.h"
#include "cohort/cli/bench_progress.h"
#include "cohort/cli/bench_rounds.h"
#include "cohort/cli/bench_step_rounds.h"
#include "cohort/cli/bench_table.h"
#include "cohort/cli/bench_worker.h"
#include "cohort/cli/cli.h"

namespace cohort::cli::bench {
namespace {

const std::vector<std::size_t> kLadder{4, 1_KiB, 64_KiB, 1_MiB, 16_MiB, 100_MiB};

int explain(const BenchOptions& options) {
  BenchOptions o = options;
  o.worker_task = "explain";
  for (const int n : o.ranks)
    for (const auto& buffers : o.buffers) fmt::print("{}", run_worker({"cohort", "", buffers}, o, "all_reduce", n));
  return 0;
}

void print_report(const Report& report, const BenchOptions& o) {
  if (!o.json) return fmt::print("{}\n", table(report, o));
  for (const Row& row : report.rows) fmt::print("{}\n", json_line(row));
  for (const auto& note : report.notes) fmt::print(stderr, "{}\n", note);
  for (const auto& line : report.voids) fmt::print(stderr, "{}\n", line);
}

}  // namespace

static int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "step") return run_step(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "memory") return run_memory(argc - 1, argv + 1);
  auto parsed = parse_bench_options(argc, argv);
  if (!parsed) return 0;
  BenchOptions& o = *parsed;
  if (!o.worker_task.empty()) return worker_main(o);
  if (o.calibrate) return calibrate(o);
  if (o.sizes.empty()) o.sizes = kLadder;
  if (o.explain) return explain(o);
  for (const auto& verb : o.verbs) {
    BenchOptions one = o;
    if (verb == "barrier") one.sizes = {0};
    for (const int n : o.ranks) {
      ProgressLine progress(ProgressLine::Elsewhere::silent);
      const auto report = run_rounds(one, verb, n, [&](const std::string& what, double share) { progress.show(what, share); });
      progress.clear();
      print_report(report, one);
      std::fflush(stdout);
    }
    if (!o.json) fmt::print("{}\n", legend(verb));
  }
  return 0;
}

}  // namespace cohort::cli::bench

namespace cohort::cli {

Command bench_command() {
  return {"bench", "measures collectives, training steps and memory here, beside what others do here", bench::run};
}

}  // namespace cohort::cli
