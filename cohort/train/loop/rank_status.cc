#include "cohort/train/loop/rank_status.h"

#include <fmt/format.h>

#include "cohort/base/text.h"

namespace cohort::train {

void RankStatus::set_phase(const char* phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  since_ = Clock::now();
}

void RankStatus::step(std::int64_t number, std::int64_t of) {
  const std::lock_guard lock(mutex_);
  step_ = number;
  of_ = of;
}

void RankStatus::begin(const collective::RunningOperation& operation) noexcept {
  const std::lock_guard lock(mutex_);
  running_.push_back({&operation, Clock::now()});
}

void RankStatus::end(const collective::RunningOperation& operation) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const Running& running) { return running.operation == &operation; });
}

std::string RankStatus::text() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::string text = step_ > 0 ? fmt::format("step {} of {}, ", step_, of_) : "";
  text += fmt::format("{} for {}", phase_, format_seconds(now - since_));
  for (const auto& [operation, since] : running_) {  // it cannot end while the mutex is held
    text += fmt::format("; in {} '{}'", operation->collective, operation->name);
    if (operation->bytes > 0) text += fmt::format(", {},", format_bytes(operation->bytes));
    text += fmt::format(" for {}", format_seconds(now - since));
  }
  return text;
}

}  // namespace cohort::train
