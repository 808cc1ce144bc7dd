#include "cohort/train/loop/straggler_log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace cohort::train {
namespace {

// Rates are of so many steps, and so long, at least: one bad step of a busy machine weighs little, and one turn of a rank on a core that it
// shares. The first are left out; three times so many name a rank.
constexpr std::int64_t kPaceSteps = 4;
constexpr double kPaceSeconds = 0.1;

}  // namespace

std::optional<StragglerLog::Changes> StragglerLog::add_step(std::span<const double> paces, std::int64_t step) {
  paces_.resize(paces.size());
  counts_.resize(paces.size());
  for (std::size_t i = 0; i < paces.size(); ++i) {
    paces_[i] += paces[i];
    counts_[i] += paces[i] > 0 ? 1 : 0;
  }
  if (++steps_ < kPaceSteps || Seconds(Clock::now() - began_).count() < kPaceSeconds) return std::nullopt;
  const bool counts = std::exchange(warm_, true);  // a rank that was started now touches its memory for the first time
  for (std::size_t i = 0; counts && i < paces.size(); ++i)
    if (counts_[i] > 0) detector_.add(Rank{static_cast<std::int32_t>(i)}, counts_[i] / paces_[i]);
  paces_.clear();
  counts_.clear();
  steps_ = 0;
  began_ = Clock::now();
  auto changes = detector_.changes();
  for (const auto& change : changes) {
    if (change.slow)
      periods_.push_back({change.rank.value, step, -1, change.of_median});
    else
      end_period(change.rank.value, step);
  }
  return changes;
}

void StragglerLog::load(const std::vector<nlohmann::json>& lines) {
  const auto number = [](const nlohmann::json& line, const char* key) { return line.contains(key) && line[key].is_number(); };
  for (const auto& line : lines) {
    if (!number(line, "slow_rank") || !number(line, "of_median")) continue;
    const auto rank = line["slow_rank"].get<std::int64_t>(), step = line["step"].get<std::int64_t>();
    if (line.value("slow", true))
      periods_.push_back({rank, step, -1, line["of_median"].get<double>()});
    else
      end_period(rank, step);
  }
  for (auto& period : periods_)
    if (period.to < 0) period.to = lines.back()["step"].get<std::int64_t>();  // the processes are others now
}

void StragglerLog::end_period(std::int64_t rank, std::int64_t step) {
  for (auto& period : periods_)
    if (period.rank == rank && period.to < 0) period.to = step;
}

std::string StragglerLog::text() const {
  std::string text;
  for (const auto& p : periods_)
    text += fmt::format("{}rank {} ({:.2f} of the median) from step {} on{}", text.empty() ? "" : "; ", p.rank, p.of_median, p.from,
                        p.to < 0 ? "" : fmt::format(" to {}", p.to));
  return text;
}

}  // namespace cohort::train
