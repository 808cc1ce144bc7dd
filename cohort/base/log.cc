#include "cohort/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "cohort/base/error.h"
#include "cohort/base/log_worker.h"
#include "cohort/base/terminal_text.h"
#include "cohort/base/text.h"

namespace cohort {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warning", "error", "off"};
std::atomic<int> threshold{static_cast<int>(Level::info)};
std::atomic<bool> for_job{true};

std::string pattern_for(std::string_view who) { return fmt::format("%H:%M:%S.%e{}{} %^%l%$: %v", who.empty() ? "" : " ", who); }

std::string rank_name(Rank rank) { return rank ? fmt::format("rank {}", rank.value) : std::string(); }

// Never destroyed: threads may log while the process leaves.
spdlog::logger& logger() {
  static spdlog::logger* one = [] {
    const auto mode = color_wanted(STDERR_FILENO) ? spdlog::color_mode::always : spdlog::color_mode::never;
    auto* made = new spdlog::logger("cohort", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
    made->set_level(spdlog::level::trace);  // log_enabled() decides
    made->flush_on(spdlog::level::trace);
    made->set_pattern(pattern_for(""));
    return made;
  }();
  return *one;
}

}  // namespace

void set_log_level(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return set_log_level(static_cast<Level>(i));
  if (name == "warn") return set_log_level(Level::warning);
  throw_unknown("log level", name, kNames);
}

void set_log_level(Level level) { threshold.store(static_cast<int>(level), std::memory_order_relaxed); }

void set_log_rank(Rank rank) {
  for_job = !rank || rank == Rank{0};
  logger().set_pattern(pattern_for(rank_name(rank)));
}

void set_log_worker(int worker, Rank rank) {
  for_job = rank ? rank == Rank{0} : worker == 0;
  logger().set_pattern(pattern_for(fmt::format("worker {}{}", worker, rank ? fmt::format(" ({})", rank_name(rank)) : "")));
}

bool logs_for_job() { return for_job; }

bool log_enabled(Level level) { return static_cast<int>(level) >= threshold.load(std::memory_order_relaxed) && level != Level::off; }

void log_line(Level level, std::string_view text) noexcept {
  try {
    logger().log(static_cast<spdlog::level::level_enum>(level), "{}", terminal_text(text, "\n    "));
  } catch (...) {  // out of memory or a closed stderr: a log line is not worth the run
  }
}

bool color_wanted(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace cohort
