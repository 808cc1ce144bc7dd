// cohort demo: four ranks on this machine, collectives at work, beside Open MPI where it is installed. Under a minute.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "cohort/base/bytes.h"
#include "cohort/base/command_line.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/bench/chart.h"
#include "cohort/bench/programs.h"
#include "cohort/bench/progress_line.h"
#include "cohort/bench/rounds.h"
#include "cohort/bench/table.h"
#include "cohort/cli/cli.h"

namespace cohort::cli {
namespace {

struct DemoOptions {
  int ranks = 4;
  std::string out = "build/demo";
  int rounds = 3;
  double seconds = 0.15;
};

// all_reduce at a handful of sizes, the other collectives at one, so that each is seen to work.
bench::BenchOptions options_of(const DemoOptions& d, const std::string& collective) {
  bench::BenchOptions o;
  o.collectives = {collective};
  o.sizes = collective == "all_reduce" ? std::vector<std::size_t>{4, 64_KiB, 1_MiB, 16_MiB, 64_MiB} : std::vector<std::size_t>{1_MiB};
  if (collective == "barrier") o.sizes = {0};
  o.rounds = collective == "all_reduce" ? d.rounds : 1;
  o.seconds = d.seconds;
  o.against = {"openmpi"};
  o.void_check = false;
  return o;
}

std::string duration(double us) { return format_seconds(Seconds{us * 1e-6}); }

const bench::Row* find(const std::vector<bench::Row>& rows, std::string_view who, std::string_view collective, std::size_t bytes) {
  for (const bench::Row& r : rows)
    if (r.who == who && r.collective == collective && r.bytes == bytes) return &r;
  return nullptr;
}

std::string bandwidth(const bench::Row* row) {
  if (row == nullptr || row->bytes < 1_KiB) return "";  // latency, not bandwidth
  return fmt::format("{:.2f} GB/s", static_cast<double>(row->bytes) / row->median_us / 1e3);
}

std::string final_table(const std::vector<bench::Row>& rows) {
  auto text = fmt::format("{:<15}{:>9}  {:>12}{:>13}  {:>12}{:>13}  {:>7}  {:>6}\n", "collective", "size", "cohort", "", "Open MPI", "",
                          "ratio", "limit");
  for (const bench::Row& ours : rows) {
    if (ours.who != "cohort") continue;
    const bench::Row* theirs = find(rows, "openmpi", ours.collective, ours.bytes);
    text += fmt::format("{:<15}{:>9}  {:>12}{:>13}  {:>12}{:>13}  {:>7}  {:>6}\n", ours.collective,
                        ours.bytes == 0 ? "" : format_bytes(ours.bytes), duration(ours.median_us), bandwidth(&ours),
                        theirs == nullptr ? "-" : duration(theirs->median_us), bandwidth(theirs),
                        theirs == nullptr ? "-" : fmt::format("{:.1f}x", theirs->median_us / ours.median_us),
                        ours.limit_share ? fmt::format("{:.2f}", *ours.limit_share) : "");
  }
  return text;
}

std::string explanation(const DemoOptions& d, const std::vector<bench::Row>& rows) {
  const bench::Row* small = find(rows, "cohort", "all_reduce", 4);
  const bench::Row* large = find(rows, "cohort", "all_reduce", 64_MiB);
  std::string text =
      "What the numbers mean\n"
      "  time    how long the slowest rank needs for one operation; the median of several fresh starts, interleaved with those of the "
      "other\n"
      "  GB/s    bytes in one rank's buffer over that time\n"
      "  ratio   Open MPI's time over ours: 3.0x means that cohort needs a third of the time\n"
      "  limit   how near this is to the memory's own speed: 1.00 would be as fast as every rank merely rewriting its buffer once\n"
      "          (a share above 1 or far below happens with sizes that fit into the caches)\n";
  if (small != nullptr)
    text += fmt::format("  all_reduce of 4 B is the time for {} ranks to exchange anything at all: {} here\n", d.ranks,
                        duration(small->median_us));
  if (large != nullptr)
    text += fmt::format("  all_reduce of 64 MiB is the gradient of a model of 17 million parameters, summed over {} ranks: {} here\n",
                        d.ranks, duration(large->median_us));
  if (const int cores = bench::this_machine().cores; d.ranks > cores)
    text += fmt::format("  {} ranks share {} cores here: with a core for each rank, small operations take well under a microsecond\n",
                        d.ranks, cores);
  return text;
}

void write_files(const DemoOptions& d, const std::vector<bench::Row>& rows) {
  std::filesystem::create_directories(d.out);
  std::string lines;
  std::map<std::string, bench::ChartLine> curves;
  for (const bench::Row& r : rows) {
    lines += bench::json_line(r) + "\n";
    if (r.collective != "all_reduce" || r.bytes < 1_KiB) continue;
    auto& curve = curves[r.who];
    curve.name = r.who == "openmpi" ? "Open MPI" : r.who;
    curve.points.push_back({static_cast<double>(r.bytes), static_cast<double>(r.bytes) / r.median_us / 1e3});
  }
  std::vector<bench::ChartLine> chart;
  for (auto& [who, curve] : curves) chart.push_back(curve);
  write_file_atomically(d.out + "/results.jsonl", lines);
  write_file_atomically(d.out + "/bandwidth.svg",
                        bench::bandwidth_chart(fmt::format("all_reduce, float32 sum, {} ranks on one host", d.ranks), chart));
  fmt::print("\nwritten: {0}/results.jsonl (every number), {0}/bandwidth.svg (a chart to open in a browser)\n", d.out);
}

std::optional<DemoOptions> parse(int argc, char** argv) {
  DemoOptions d;
  CLI::App app{"collectives at work on this machine, beside Open MPI where it is installed", "cohort demo"};
  app.option_defaults()->always_capture_default();
  app.add_option("-n,--ranks", d.ranks, "ranks to start")->check(CLI::Range(1, 64));
  app.add_option("--out", d.out, "folder for results.jsonl and bandwidth.svg");
  app.add_option("--rounds", d.rounds, "starts of each implementation")->check(CLI::Range(1, 100));
  app.add_option("--seconds", d.seconds, "of timing per size and start")->check(CLI::Range(0.001, 60.0));
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  return d;
}

}  // namespace

static int demo_run(int argc, char** argv) {
  const auto parsed = parse(argc, argv);
  if (!parsed) return 0;
  const DemoOptions& d = *parsed;
  fmt::print("{} ranks on {} cores ({}): each collective runs, is checked element by element, and is timed\n\n", d.ranks,
             bench::this_machine().cores, bench::this_machine().model);
  std::fflush(stdout);
  bench::ProgressLine progress(bench::ProgressLine::Elsewhere::lines);
  const std::vector<std::string> collectives{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier"};
  std::vector<bench::Row> rows;
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const double done = i == 0 ? 0 : 0.5 + 0.5 * static_cast<double>(i - 1) / static_cast<double>(collectives.size() - 1);
    const double part = i == 0 ? 0.5 : 0.5 / static_cast<double>(collectives.size() - 1);
    const auto report = bench::run_rounds(options_of(d, collectives[i]), collectives[i], d.ranks,
                                          [&](const std::string& what, double share) { progress.show(what, done + share * part); });
    rows.insert(rows.end(), report.rows.begin(), report.rows.end());
    if (i == 0) notes = report.notes;
  }
  progress.clear();
  fmt::print("{}\n", final_table(rows));
  for (const auto& note : notes) fmt::print("{}\n", note);
  fmt::print("\n{}", explanation(d, rows));
  write_files(d, rows);
  return 0;
}

Command demo_command() { return {"demo", "collectives at work: four ranks, a table, a chart", demo_run}; }

}  // namespace cohort::cli
