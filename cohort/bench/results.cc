#include "cohort/bench/results.h"

#include <sched.h>

#include <nlohmann/json.hpp>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/bench/measure.h"
#include "cohort/collective/cost/calibration_file.h"

namespace cohort::bench {

std::vector<Line> parse_lines(std::string_view out) {
  std::vector<Line> lines;
  for (const auto text : split(out, '\n')) {
    if (!text.starts_with('{')) continue;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.contains("median_us")) throw_failure(Kind::corrupt, "an implementation printed '{}'", printable(text));
    Line line;
    line.bytes = json.at("bytes").get<std::size_t>();
    line.median_us = json.at("median_us").get<double>();
    line.low_us = json.at("low_us").get<double>();
    line.high_us = json.at("high_us").get<double>();
    line.repeats = json.at("repeats").get<int>();
    line.checksum = json.at("checksum").get<std::uint32_t>();
    line.limit_us = json.value("update_us", 0.0);
    line.algorithm = json.value("algorithm", std::string{});
    line.transport = json.value("transport", std::string{});
    lines.push_back(std::move(line));
  }
  return lines;
}

void summarize(Row& row, const std::vector<Line>& rounds) {
  std::vector<double> medians;
  row.repeats = 0;
  for (const Line& line : rounds) {
    medians.push_back(line.median_us);
    row.repeats += line.repeats;
  }
  row.rounds = static_cast<int>(rounds.size());
  row.median_us = measure::percentile(medians, 0.5);
  row.low_us = measure::percentile(medians, 0);
  row.high_us = measure::percentile(medians, 1);
  row.bytes = rounds.at(0).bytes;
  row.checksum = rounds.at(0).checksum;
}

namespace {

// Reads and writes in units of N; each rank's part of a buffer counts once, wherever it is used first.
struct Moves {
  std::string_view collective, formula;
  double (*units)(double p);
};
constexpr Moves kMoves[] = {
    {"all_reduce", "2PN: every buffer is read once and written once", [](double p) { return 2 * p; }},
    {"reduce_scatter", "(P+1)N: every input is read, N/P written on each rank", [](double p) { return p + 1; }},
    {"all_gather", "(P+1)N: N/P read on each rank, N written on each", [](double p) { return p + 1; }},
    {"broadcast", "PN: N read once, written on all ranks but the root", [](double p) { return p; }},
    {"reduce", "(P+1)N: every input is read, N written on the root", [](double p) { return p + 1; }},
    {"gather", "2N: N/P read on each rank, N written on the root", [](double) { return 2.0; }},
    {"scatter", "2N: N read on the root, N/P written on each rank", [](double) { return 2.0; }},
    {"all_to_all", "2PN: N read and N written on each rank", [](double p) { return 2 * p; }},
    {"send", "2N: N read on one rank, written on the other", [](double) { return 2.0; }},
    {"barrier", "0: nothing has to move", [](double) { return 0.0; }},
};

const Moves& moves_of(std::string_view collective) {
  for (const Moves& m : kMoves)
    if (m.collective == collective) return m;
  throw_failure(Kind::bug, "no count of bytes for collective '{}'", collective);
}

}  // namespace

double bytes_that_must_move(std::string_view collective, int ranks, std::size_t bytes) {
  return moves_of(collective).units(ranks) * static_cast<double>(bytes);
}
std::string_view bytes_that_must_move_formula(std::string_view collective) { return moves_of(collective).formula; }

std::optional<double> limit_us(std::string_view collective, int ranks, std::size_t bytes, double update_us) {
  const double must = bytes_that_must_move(collective, ranks, bytes);
  const double updated = 2.0 * ranks * static_cast<double>(bytes);
  if (must <= 0 || updated <= 0 || update_us <= 0) return std::nullopt;
  return update_us * must / updated;
}

Machine this_machine() {
  Machine m;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) m.cores = CPU_COUNT(&allowed);
  m.model = collective::processor_name();
  return m;
}

std::optional<double> expected_us(const Machine& machine, const Row& row) {
  struct Known {
    std::string_view model, who;
    int cores;
    std::size_t bytes;
    double two_ranks, four_ranks;
  };
  constexpr Known kKnown[] = {
      {"AMD EPYC", "openmpi", 2, 100_MiB, 78'000, 173'000},
      {"AMD EPYC", "openmpi-tuned", 2, 100_MiB, 36'000, 95'000},
      {"AMD EPYC", "gloo", 2, 100_MiB, 90'000, 176'000},
      {"AMD EPYC", "openmpi", 2, 1_MiB, 120, 460},
      {"AMD EPYC", "gloo", 2, 1_MiB, 2500, 7300},
      {"AMD EPYC", "openmpi", 2, 4, 0.31, 6.2},
      {"AMD EPYC", "gloo", 2, 4, 253, 812},
  };
  if (row.collective != "all_reduce" || row.dtype != "f32" || row.op != "sum") return std::nullopt;
  for (const Known& k : kKnown)
    if (k.who == row.who && k.bytes == row.bytes && k.cores == machine.cores && machine.model.starts_with(k.model) &&
        (row.ranks == 2 || row.ranks == 4))
      return row.ranks == 2 ? k.two_ranks : k.four_ranks;
  return std::nullopt;
}

}  // namespace cohort::bench
