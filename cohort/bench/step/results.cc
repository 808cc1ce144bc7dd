#include "cohort/bench/step/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/bench/measure.h"

namespace cohort::bench {
namespace {

std::optional<double> maybe(const nlohmann::json& json, const char* name) {
  return json.contains(name) ? std::optional(json.at(name).get<double>()) : std::nullopt;
}

using Share = std::optional<double> StepLine::*;
std::optional<double> median_of(const std::vector<StepLine>& rounds, Share share) {
  std::vector<double> values;
  for (const StepLine& line : rounds)
    if (line.*share) values.push_back(*(line.*share));
  return values.empty() ? std::nullopt : std::optional(measure::percentile(values, 0.5));
}

double median_of(const std::vector<StepLine>& rounds, double StepLine::*field, double at = 0.5) {
  std::vector<double> values;
  for (const StepLine& line : rounds) values.push_back(line.*field);
  return measure::percentile(values, at);
}

}  // namespace

StepLine parse_step_line(std::string_view out) {
  std::string_view found;
  for (const auto text : split(out, '\n'))
    if (text.starts_with('{')) found = text;
  const auto json = nlohmann::json::parse(found, nullptr, false);
  if (json.is_discarded() || !json.contains("samples_per_s") || !json.contains("last_loss"))
    throw_failure(Kind::corrupt, "an implementation printed '{}', which has no samples per second", printable(out));
  return {.samples_per_s = json.at("samples_per_s").get<double>(),
          .first_loss = json.value("first_loss", 0.0),
          .last_loss = json.at("last_loss").get<double>(),
          .compute = maybe(json, "compute_share"),
          .wait = maybe(json, "wait_share"),
          .comm = maybe(json, "comm_share"),
          .moved_bytes = maybe(json, "moved_bytes"),
          .peak_bytes = maybe(json, "peak_bytes")};
}

void summarize(StepRow& row, const std::vector<StepLine>& rounds) {
  row.rounds = static_cast<int>(rounds.size());
  row.samples_per_s = median_of(rounds, &StepLine::samples_per_s);
  row.low = median_of(rounds, &StepLine::samples_per_s, 0);
  row.high = median_of(rounds, &StepLine::samples_per_s, 1);
  row.first_loss = median_of(rounds, &StepLine::first_loss);
  row.last_loss = median_of(rounds, &StepLine::last_loss);
  row.compute = median_of(rounds, &StepLine::compute);
  row.wait = median_of(rounds, &StepLine::wait);
  row.comm = median_of(rounds, &StepLine::comm);
  row.moved_bytes = median_of(rounds, &StepLine::moved_bytes);
  row.peak_bytes = median_of(rounds, &StepLine::peak_bytes);
}

// The interval of a median that no assumption about the values is needed for: between the k-th smallest and the k-th largest of n values
// lies the true median with the probability that of n tosses of a coin at least k fall on each side.
void compare(StepRow& row, const std::vector<StepLine>& ours, const std::vector<StepLine>& theirs) {
  constexpr double kOutside = 0.025;  // on each side
  std::vector<double> pairs;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) pairs.push_back(ours[i].samples_per_s / theirs[i].samples_per_s);
  if (pairs.empty()) return;
  row.ratio = measure::percentile(pairs, 0.5);
  std::ranges::sort(pairs);
  const auto n = static_cast<double>(pairs.size());
  std::size_t k = 0;
  double tosses = std::exp2(-n), below = tosses;  // P(exactly k), P(at most k) of n tosses
  while (below <= kOutside) {
    ++k;
    tosses *= (n - static_cast<double>(k) + 1) / static_cast<double>(k);
    below += tosses;
  }
  if (k == 0) return;
  row.ratio_low = pairs[k - 1];
  row.ratio_high = pairs[pairs.size() - k];
}

std::vector<std::string> find_slower(const std::vector<StepRow>& rows, double require) {
  std::vector<std::string> lines;
  for (const StepRow& row : rows) {
    if (require <= 0 || &row == &rows.front()) continue;
    if (!row.ratio || !std::isfinite(*row.ratio))
      lines.push_back(fmt::format("NOT COMPARED: there is no ratio to {}", row.who));
    else if (*row.ratio < require)
      lines.push_back(
          fmt::format("SLOWER: the median of {} pairs is {:.3f} of {}, less than {}", row.rounds, *row.ratio, row.who, require));
    else if (row.ratio_high && *row.ratio_high < 1)
      lines.push_back(fmt::format("SLOWER: the median of {} pairs is between {:.3f} and {:.3f} of {} (95 %), which does not reach 1",
                                  row.rounds, *row.ratio_low, *row.ratio_high, row.who));
  }
  return lines;
}

std::vector<std::string> compare_losses(const std::vector<StepRow>& rows) {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double ours = rows[0].last_loss, theirs = rows[i].last_loss;
    const double apart = std::abs(ours - theirs) / std::max(std::abs(theirs), 1e-9);
    if (rows[i].who == "previous" && ours != theirs)
      lines.push_back(fmt::format("other bits than before: the last loss is {:.17g}, previous reached {:.17g}", ours, theirs));
    if (apart <= kLossesApart) continue;
    lines.push_back(fmt::format("the losses differ: {} reached {:.4g} and {} {:.4g} after the same steps ({:.0f} % apart)", rows[0].who,
                                ours, rows[i].who, theirs, 100 * apart));
  }
  return lines;
}

std::optional<double> expected_samples_per_s(const Machine& machine, const StepRow& row) {
  struct Known {
    std::string_view machine, who, model;
    int cores, ranks;
    std::int64_t batch, tokens;
    double samples_per_s;
  };
  constexpr Known kKnown[] = {
      {"AMD EPYC", "torch-ddp", "mlp", 2, 2, 64, 0, 14'400},         {"AMD EPYC", "torch-ddp", "cnn", 2, 2, 64, 0, 2'800},
      {"AMD EPYC", "torch-zero1", "gpt-50m", 2, 2, 4, 0, 8 / 2.35},  {"AMD EPYC", "torch-fsdp2", "gpt-50m", 2, 2, 4, 0, 8 / 3.27},
      {"AMD EPYC", "torch-zero1", "gpt-50m", 2, 2, 1, 32, 2 / 0.55}, {"AMD EPYC", "torch-fsdp2", "gpt-50m", 2, 2, 1, 32, 2 / 1.09},
  };
  for (const Known& k : kKnown)
    if (machine.model.starts_with(k.machine) && machine.cores == k.cores && row.who == k.who && row.model == k.model &&
        row.ranks == k.ranks && row.batch == k.batch && row.tokens == k.tokens)
      return k.samples_per_s;
  return std::nullopt;
}

std::vector<std::string> find_voids(std::vector<StepRow>& rows, const Machine& machine) {
  std::vector<std::string> voids;
  for (const StepRow& row : rows) {
    const auto expected = expected_samples_per_s(machine, row);
    if (!expected || row.samples_per_s * kVoidAbove >= *expected) continue;
    voids.push_back(
        fmt::format("VOID: {} trained {:.4g} samples/s of {} on {} ranks and is known to reach {:.4g} on this kind of machine: "
                    "something else uses it; run again, or pass --no-void-check",
                    row.who, row.samples_per_s, row.model, row.ranks, *expected));
  }
  for (StepRow& row : rows) row.spoiled = !voids.empty();
  return voids;
}

}  // namespace cohort::bench
