#include "cohort/bench/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace cohort::bench {

ProgressLine::ProgressLine(Elsewhere elsewhere) : terminal_(isatty(STDERR_FILENO) != 0), elsewhere_(elsewhere) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& what, double share) {
  if (terminal_) {
    constexpr int kWidth = 20;
    const int full = static_cast<int>(share * kWidth);
    fmt::print(stderr, "\r\033[K{:3.0f}%|{}{}| {}", share * 100, std::string(static_cast<std::size_t>(full), '#'),
               std::string(static_cast<std::size_t>(kWidth - full), ' '), what);
    std::fflush(stderr);
    dirty_ = true;
  } else if (elsewhere_ == Elsewhere::lines) {
    fmt::print(stderr, "{:3.0f}% {}\n", share * 100, what);
  }
}

void ProgressLine::clear() {
  if (dirty_) fmt::print(stderr, "\r\033[K");
  dirty_ = false;
}

}  // namespace cohort::bench
