// cohort bench: parses the options, then explains, calibrates, or runs the rounds and prints.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "cohort/base/bytes.h"
#include "cohort/bench/calibrate.h"
#include "cohort/bench/doctor/doctor.h"
#include "cohort/bench/memory.h"
#include "cohort/bench/options.h"
#include "cohort/bench/progress_line.h"
#include "cohort/bench/rounds.h"
#include "cohort/bench/step/rounds.h"
#include "cohort/bench/table.h"
#include "cohort/bench/worker.h"
#include "cohort/cli/cli.h"
#include "cohort/cli/list_in_worker.h"

namespace cohort::cli {
namespace {

const std::vector<std::size_t> kDefaultSizes{4, 1_KiB, 64_KiB, 1_MiB, 16_MiB, 100_MiB};

int explain(const bench::BenchOptions& options) {
  bench::BenchOptions o = options;
  o.worker_task = "explain";
  for (const int n : o.ranks)
    for (const auto& buffers : o.buffers) fmt::print("{}", bench::run_worker({"cohort", "", buffers}, o, "all_reduce", n));
  return 0;
}

// Constants that were measured on a busy machine are wrong for as long as the file is used.
int calibrate_idle(const bench::BenchOptions& options) {
  using namespace bench::doctor;
  if (const Finding load = judge_load(load_now(), bench::this_machine().cores); load.level != Level::ok)
    fmt::print(stderr, "cohort bench: load {}: {}\n", load.text, load.advice);
  return bench::calibrate(options);
}

void print_report(const bench::Report& report, const bench::BenchOptions& o) {
  if (!o.json) return fmt::print("{}\n", bench::table(report, o));
  for (const bench::Row& row : report.rows) fmt::print("{}\n", bench::json_line(row));
  for (const auto& note : report.notes) fmt::print(stderr, "{}\n", note);
  for (const auto& line : report.voids) fmt::print(stderr, "{}\n", line);
}

}  // namespace

static int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "step") return bench::run_step(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "memory") return bench::run_memory(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "codec") {
    std::vector<std::string> args{"bench-codec"};
    args.insert(args.end(), argv + 2, argv + argc);
    return run_in_worker(args);
  }
  auto parsed = bench::parse_bench_options(argc, argv);
  if (!parsed) return 0;
  bench::BenchOptions& o = *parsed;
  if (!o.worker_task.empty()) return bench::worker_main(o);
  if (o.calibrate) return calibrate_idle(o);
  if (o.sizes.empty()) o.sizes = kDefaultSizes;
  if (o.explain) return explain(o);
  for (const auto& collective : o.collectives) {
    bench::BenchOptions one = o;
    if (collective == "barrier") one.sizes = {0};
    for (const int n : o.ranks) {
      bench::ProgressLine progress(bench::ProgressLine::Elsewhere::silent);
      const auto report = bench::run_rounds(one, collective, n, [&](const std::string& what, double share) { progress.show(what, share); });
      progress.clear();
      print_report(report, one);
      std::fflush(stdout);
    }
    if (!o.json) fmt::print("{}\n", bench::legend(collective));
  }
  return 0;
}

Command bench_command() { return {"bench", "measures collectives, training steps, codecs and memory, beside baselines", run}; }

}  // namespace cohort::cli
