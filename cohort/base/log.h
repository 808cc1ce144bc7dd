// One logger to stderr: "14:03:02.123 rank 3 warning: text". Coloured only on a terminal and without NO_COLOR.
// Owner: the process. Threads: any. Failure: none, a line that cannot be written is lost.
// Secrets: net::Secret has no formatter, so passing one does not compile; never log an environment or a handshake. Control bytes
// are escaped and further lines are indented, so text from a peer can neither drive the terminal nor fake a line of its own.
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "cohort/base/ids.h"

namespace cohort {

enum class Level : int { trace, debug, info, warning, error, off };

void set_log_level(std::string_view name);  // a Level's name, also "warn"; Kind::usage otherwise
void set_log_level(Level level);
void set_log_rank(Rank rank);  // kNoRank takes the prefix away

// For what every rank finds alike: true on rank 0, which says it for all, on worker 0 of a job whose ranks are not known yet, and in a
// process that is neither.
bool logs_for_job();

void log_line(Level level, std::string_view text) noexcept;  // written even below the level: the templates ask first
bool log_enabled(Level level);

// Whether output to this descriptor should be coloured: a terminal, and NO_COLOR unset or empty.
bool color_wanted(int fd);

template <class... Args>
void log_at(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(Level::debug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(Level::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_at(Level::warning, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(Level::error, format, std::forward<Args>(args)...);
}

}  // namespace cohort
