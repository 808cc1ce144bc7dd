#include "cohort/bench/table.h"

#include <fmt/format.h>

#include "cohort/base/text.h"
#include "cohort/bench/json_number.h"

namespace cohort::bench {
namespace {

std::string us(double value) { return format_us(Seconds{value * 1e-6}); }

std::string rate(const Row& row) {
  if (row.bytes == 0 || row.median_us <= 0) return "";
  return fmt::format("{:.3g}", static_cast<double>(row.bytes) / row.median_us / 1e3);
}

}  // namespace

std::string json_line(const Row& r) {
  nlohmann::ordered_json j;
  j["who"] = r.who;
  j["collective"] = r.collective;
  j["algorithm"] = r.algorithm;
  j["ranks"] = r.ranks;
  j["bytes"] = r.bytes;
  j["dtype"] = r.dtype;
  j["op"] = r.op;
  j["median_us"] = rounded(r.median_us);
  j["low_us"] = rounded(r.low_us);
  j["high_us"] = rounded(r.high_us);
  j["repeats"] = r.repeats;
  j["rounds"] = r.rounds;
  j["limit_us"] = rounded_or_null(r.limit_us);
  j["limit_share"] = rounded_or_null(r.limit_share);
  j["ratio"] = rounded_or_null(r.ratio);
  j["checksum"] = r.checksum;
  if (r.who == "cohort") j["buffers"] = r.buffers, j["transport"] = r.transport;
  j["void"] = r.spoiled;
  return j.dump();
}

std::string table(const Report& report, const BenchOptions& o) {
  std::string text = fmt::format("{}, {} ranks, {}{}, {} rounds\n", report.collective, report.ranks, o.dtype,
                                 report.collective.find("reduce") == std::string::npos ? "" : " " + o.op, o.rounds);
  text += fmt::format("{:>10}  {:<14} {:<18} {:>10}  {:>19}  {:>7}  {:>7}  {:>6}\n", "size", "who", "algorithm", "median us", "rounds us",
                      "GB/s", "ratio", "limit");
  std::size_t last = ~std::size_t{0};
  for (const Row& r : report.rows) {
    const auto algorithm = r.buffers == "any" ? r.algorithm + " (any)" : r.algorithm;
    text += fmt::format("{:>10}  {:<14} {:<18} {:>10}  {:>19}  {:>7}  {:>7}  {:>6}{}\n", r.bytes == last ? "" : format_bytes(r.bytes),
                        r.who, algorithm, us(r.median_us), us(r.low_us) + " .. " + us(r.high_us), rate(r),
                        r.ratio ? fmt::format("{:.2f}x", *r.ratio) : "", r.limit_share ? fmt::format("{:.2f}", *r.limit_share) : "",
                        r.spoiled ? "  void" : "");
    last = r.bytes;
  }
  for (const auto& note : report.notes) text += fmt::format("  {}\n", note);
  for (const auto& line : report.voids) text += line + "\n";
  return text;
}

std::string legend(const std::string& collective) {
  return fmt::format(
      "size       bytes of the largest buffer a rank holds (N; P is the number of ranks)\n"
      "median us  microseconds for one operation, slowest rank: the median over rounds of each round's median\n"
      "rounds us  the fastest and the slowest round: how far to trust the median\n"
      "GB/s       size over median, 10^9 bytes per second\n"
      "ratio      their time over ours (the first cohort row of that size): above 1 cohort is faster\n"
      "limit      share of the memory limit: the time that the bytes which must move ({})\n"
      "           take at the bandwidth of an in-place update by all ranks at once, measured in the same run, over the median. 1 is the "
      "limit;\n"
      "           it means little for sizes that fit into the caches\n",
      bytes_that_must_move_formula(collective));
}

}  // namespace cohort::bench
