#include "cohort/train/loop/whereabouts.h"

#include <fmt/format.h>

#include "cohort/base/text.h"

namespace cohort {

void Whereabouts::doing(const char* phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  since_ = Clock::now();
}

void Whereabouts::step(std::int64_t number, std::int64_t of) {
  const std::lock_guard lock(mutex_);
  step_ = number;
  of_ = of;
}

std::string Whereabouts::text() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::string text = step_ > 0 ? fmt::format("step {} of {}, ", step_, of_) : "";
  text += fmt::format("{} for {}", phase_, format_seconds(now - since_));
  for (const Inside& i : inside_) {
    text += fmt::format("; in {} '{}'", i.verb, i.name);
    if (i.bytes > 0) text += fmt::format(", {},", format_bytes(i.bytes));
    text += fmt::format(" for {}", format_seconds(now - i.since));
  }
  return text;
}

Operation::Operation(Whereabouts& where, const char* verb, std::string_view name, std::size_t bytes) : where_(where) {
  const std::lock_guard lock(where_.mutex_);
  mine_ = where_.inside_.insert(where_.inside_.end(), {verb, std::string(name), bytes, Clock::now()});
}

Operation::~Operation() {
  const std::lock_guard lock(where_.mutex_);
  where_.inside_.erase(mine_);
}

}  // namespace cohort
