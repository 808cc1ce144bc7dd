#include "cohort/bench/rounds.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/fd.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::bench {
namespace {

constexpr double kSlowestRate = 20e6;  // bytes per second and rank, far below anything seen: only a hang is slower

Deadline time_limit(const BenchOptions& o, int ranks) {
  const double bytes = static_cast<double>(std::accumulate(o.sizes.begin(), o.sizes.end(), std::size_t{0}));
  const double sizes = static_cast<double>(o.sizes.size());
  return Deadline::in(Seconds{120 + sizes * (20 * o.seconds + 10) + bytes * ranks / kSlowestRate});
}

// All rounds of all implementations: lines[implementation][size] is a list over rounds.
using Lines = std::vector<std::vector<std::vector<Line>>>;

void compare_checksums(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    for (const Row& other : rows)
      if (row.bytes == other.bytes && row.checksum != other.checksum)
        throw_failure(Kind::corrupt, "{} and {} have different results of {} of {} on {} ranks: checksums {} and {}", row.who, other.who,
                      row.collective, format_bytes(row.bytes), row.ranks, row.checksum, other.checksum);
}

std::vector<Row> rows_of(const BenchOptions& o, const std::string& collective, int ranks, const Implementations& chosen,
                         const Lines& lines) {
  std::vector<Row> rows;
  for (std::size_t size = 0; size < o.sizes.size(); ++size) {
    std::vector<double> updates;
    const std::size_t first = rows.size();
    for (std::size_t c = 0; c < chosen.implementations.size(); ++c) {
      if (lines[c][size].empty()) continue;
      const Implementation& who = chosen.implementations[c];
      Row row{who.who, collective, who.ours() ? lines[c][size].front().algorithm : "default", o.dtype, o.op, who.buffers};
      row.transport = lines[c][size].front().transport;
      row.ranks = ranks;
      summarize(row, lines[c][size]);
      for (const Line& line : lines[c][size])
        if (line.limit_us > 0) updates.push_back(line.limit_us);
      rows.push_back(row);
    }
    std::sort(updates.begin(), updates.end());
    for (std::size_t i = first; i < rows.size(); ++i) {
      Row& row = rows[i];
      if (!updates.empty()) row.limit_us = limit_us(collective, ranks, row.bytes, updates[updates.size() / 2]);
      if (row.limit_us) row.limit_share = *row.limit_us / row.median_us;
      if (row.who != "cohort") row.ratio = row.median_us / rows[first].median_us;
    }
  }
  return rows;
}

std::vector<std::string> find_voids(std::vector<Row>& rows) {
  std::vector<std::string> voids;
  const Machine machine = this_machine();
  for (const Row& row : rows) {
    const auto expected = expected_us(machine, row);
    if (!expected || row.median_us <= kVoidAbove * *expected) continue;
    voids.push_back(
        fmt::format("VOID: {} needed {} us for {} on {} ranks and is known to need {} us on this kind of machine ({:.2f}x): something "
                    "else uses it; run again, or pass --no-void-check",
                    row.who, format_us(Seconds{row.median_us * 1e-6}), format_bytes(row.bytes), row.ranks,
                    format_us(Seconds{*expected * 1e-6}), row.median_us / *expected));
    for (Row& same : rows) same.spoiled = same.spoiled || same.bytes == row.bytes;
  }
  return voids;
}

}  // namespace

Outcome run_well(const CommandLine& program, Deadline deadline, const std::string& label, int ranks) {
  auto o = run_process(program, deadline);
  if (o.ok()) return o;
  const auto how = o.late ? std::string("did not end in time") : fmt::format("ended with status {}", o.status);
  throw_failure(Kind::system, "{} on {} ranks {}: {}", label, ranks, how, o.last_line().empty() ? "it printed nothing" : o.last_line());
}

std::string run_and_read(const std::function<CommandLine(const std::string&)>& make, Deadline deadline, const std::string& label,
                         int ranks) {
  const Fd results{memfd_create("cohort-bench", MFD_CLOEXEC)};  // by /proc path: no file is left behind however this ends
  if (!results) throw_system("memfd_create");
  const auto path = fmt::format("/proc/{}/fd/{}", getpid(), results.get());
  run_well(make(path), deadline, label, ranks);
  return read_file(path);
}

void for_each_start(std::size_t n, int rounds, const std::function<void(std::size_t, int, double)>& start) {
  const std::size_t starts = n * static_cast<std::size_t>(rounds);
  for (std::size_t i = 0; i < starts; ++i) {
    const std::size_t round = i / n;
    start((i + round) % n, static_cast<int>(round), static_cast<double>(i) / static_cast<double>(starts));
  }
}

std::string run_worker(const Implementation& c, const BenchOptions& o, const std::string& collective, int ranks) {
  const auto make = [&](const std::string& path) { return program_of(c, o, collective, ranks, path); };
  return run_and_read(make, time_limit(o, ranks), c.label(), ranks);
}

std::vector<Line> run_once(const Implementation& c, const BenchOptions& o, const std::string& collective, int ranks) {
  auto lines = parse_lines(c.ours() ? run_worker(c, o, collective, ranks)
                                    : run_well(program_of(c, o, collective, ranks, ""), time_limit(o, ranks), c.label(), ranks).out);
  if (lines.size() != o.sizes.size())
    throw_failure(Kind::corrupt, "{} answered {} of {} sizes on {} ranks", c.label(), lines.size(), o.sizes.size(), ranks);
  return lines;
}

Report run_rounds(const BenchOptions& o, const std::string& collective, int ranks, const Progress& progress) {
  const Implementations chosen = select_implementations(o, collective, ranks);
  Report report{collective, ranks, {}, chosen.notes, {}};
  const std::size_t n = chosen.implementations.size();
  Lines lines(n, std::vector<std::vector<Line>>(o.sizes.size()));
  std::vector<bool> out(n, false);
  for_each_start(n, o.rounds, [&](std::size_t who, int round, double share) {
    const Implementation& c = chosen.implementations[who];
    if (out[who]) return;
    progress(fmt::format("{} on {} ranks, round {} of {}: {}", collective, ranks, round + 1, o.rounds, c.label()), share);
    try {
      const auto answers = run_once(c, o, collective, ranks);
      for (std::size_t size = 0; size < answers.size(); ++size) lines[who][size].push_back(answers[size]);
    } catch (const Failure& failure) {
      if (c.ours()) throw;
      out[who] = true;
      for (auto& size : lines[who]) size.clear();
      report.notes.push_back(fmt::format("{} is left out: {}", c.who, failure.what()));
    }
  });
  report.rows = rows_of(o, collective, ranks, chosen, lines);
  compare_checksums(report.rows);
  if (o.void_check) report.voids = find_voids(report.rows);
  return report;
}

}  // namespace cohort::bench
