// How the rows of `cohort bench step` look: JSON lines for machines, a table with its own legend for people.
#include <fmt/format.h>

#include "cohort/bench/json_number.h"
#include "cohort/bench/step/results.h"

namespace cohort::bench {
namespace {

std::string rate_text(double rate) { return rate < 100 ? fmt::format("{:.2f}", rate) : fmt::format("{:.0f}", rate); }
std::string percent(const std::optional<double>& share) { return share ? fmt::format("{:.1f} %", 100 * *share) : ""; }

std::string mebibytes(const std::optional<double>& bytes) { return bytes ? fmt::format("{:.0f} MiB", *bytes / 1048576) : ""; }

}  // namespace

std::string json_line(const StepRow& r) {
  nlohmann::ordered_json j;
  j["who"] = r.who;
  j["model"] = r.model;
  j["ranks"] = r.ranks;
  j["batch"] = r.batch;
  j["samples_per_s"] = rounded(r.samples_per_s);
  j["low"] = rounded(r.low);
  j["high"] = rounded(r.high);
  j["compute_share"] = rounded_or_null(r.compute);
  j["wait_share"] = rounded_or_null(r.wait);
  j["comm_share"] = rounded_or_null(r.comm);
  j["first_loss"] = rounded(r.first_loss);
  j["last_loss"] = rounded(r.last_loss);
  j["rounds"] = r.rounds;
  j["ratio"] = rounded_or_null(r.ratio);
  j["ratio_low"] = rounded_or_null(r.ratio_low);
  j["ratio_high"] = rounded_or_null(r.ratio_high);
  j["sync"] = r.sync.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.sync);
  j["recompute"] = r.recompute;
  j["moved_bytes"] = rounded_or_null(r.moved_bytes);
  j["peak_bytes"] = rounded_or_null(r.peak_bytes);
  j["void"] = r.spoiled;
  return j.dump();
}

std::string step_table(const std::vector<StepRow>& rows) {
  std::string text = fmt::format("{:<11} {:>10}  {:>19}  {:>7}  {:>8} {:>8} {:>8}  {:>9}  {:>9}  {:>16}\n", "who", "samples/s", "rounds",
                                 "ratio", "compute", "wait", "comm", "moved", "peak", "loss");
  for (const StepRow& r : rows)
    text += fmt::format("{:<11} {:>10}  {:>19}  {:>7}  {:>8} {:>8} {:>8}  {:>9}  {:>9}  {:>16}{}\n", r.who, rate_text(r.samples_per_s),
                        fmt::format("{} .. {}", rate_text(r.low), rate_text(r.high)), r.ratio ? fmt::format("{:.2f}x", *r.ratio) : "",
                        percent(r.compute), percent(r.wait), percent(r.comm), mebibytes(r.moved_bytes), mebibytes(r.peak_bytes),
                        fmt::format("{:.3f} to {:.3f}", r.first_loss, r.last_loss), r.spoiled ? "  void" : "");
  for (const StepRow& r : rows)
    if (r.ratio_low)
      text += fmt::format("  ratio to {}: {:.3f}, 95 % interval {:.3f} .. {:.3f}, {} pairs\n", r.who, *r.ratio, *r.ratio_low, *r.ratio_high,
                          r.rounds);
  return text;
}

std::string step_legend() {
  return "samples/s  of all ranks together over a window of whole steps: the median over rounds\n"
         "rounds     the slowest and the fastest round: how far to trust the median\n"
         "ratio      our samples/s over theirs: above 1 cohort is faster; the median of the pairs that each round makes\n"
         "compute    share of the window spent in loading, forward, backward and update\n"
         "wait       share spent waiting for other ranks\n"
         "comm       share spent moving and adding gradients\n"
         "moved      bytes a rank receives from others in a step, as its communicator counts them\n"
         "peak       memory of one rank during the first steps, less what it had before the model was made; shared pages count in part\n"
         "loss       mean of the first tenth and of the last quarter of the steps: implementations that train alike end alike\n";
}

}  // namespace cohort::bench
