#include "cohort/launch/worker_failures.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>

#include "cohort/launch/failure_report.h"

namespace cohort::launch {
namespace {

// What ends a traceback or a report is what names the error.
std::string error_of(const WorkerFailure& failure) { return failure.last_lines.empty() ? "" : without_numbers(failure.last_lines.back()); }

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};

// What it wrote last has nothing to do with its end.
bool crashed(const WorkerFailure& f) { return WIFSIGNALED(f.status) && (f.for_memory || WTERMSIG(f.status) != SIGABRT); }

// Whether there is a core file does not matter.
bool ended_alike(const WorkerFailure& a, const WorkerFailure& b) {
  if (WIFEXITED(a.status) || WIFEXITED(b.status)) return a.status == b.status;
  return WTERMSIG(a.status) == WTERMSIG(b.status) && a.for_memory == b.for_memory;
}

bool same_error(const WorkerFailure& later, const WorkerFailure& earlier) {
  if (!ended_alike(later, earlier)) return false;
  return crashed(later) ? later.at - earlier.at <= WorkerFailures::kCascade : error_of(later) == error_of(earlier);
}

std::string end_of(const WorkerFailure& f) {
  return f.for_memory ? "killed for want of memory" : "killed by " + signal_name(WTERMSIG(f.status));
}

std::string same_error_text(const WorkerFailure& later, const WorkerFailure& earlier) {
  if (crashed(later))
    return fmt::format(
        "{} ended as {} did before it ({}), and so would the next one: the job stops; the cause is to be mended (the program, its data, "
        "this machine) before it is started again",
        later.name, earlier.name, end_of(later));
  return fmt::format(
      "{} ended with the same error as {} before it, and so would the next one: the job stops; what the error names is to be mended (the "
      "program, its data, this machine) before it is started again",
      later.name, earlier.name);
}

bool follows(const WorkerFailure& later, const WorkerFailure& earlier) {
  return later.worker >= earlier.started || later.epoch > earlier.epoch;
}

}  // namespace

// A hexadecimal number is a word of hexadecimal digits with a decimal one among them.
std::string without_numbers(const std::string& text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      out += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string word = text.substr(at, end - at);
    const bool number = std::ranges::any_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
    out += number ? "#" : word;
    at = end;
  }
  return out;
}

bool WorkerFailures::is_own(int status, bool for_memory) {
  if (WIFEXITED(status)) return WEXITSTATUS(status) != 0;
  const int number = WTERMSIG(status);
  return for_memory || number == SIGABRT || std::ranges::find(kCrashes, number) != kCrashes.end();
}

std::optional<std::string> WorkerFailures::add(WorkerFailure failure, bool committed) {
  const auto earlier =
      std::ranges::find_if(failures_, [&](const WorkerFailure& f) { return same_error(failure, f) && follows(failure, f); });
  std::optional<std::string> why;
  if (earlier != failures_.end()) why = same_error_text(failure, *earlier);
  failures_.push_back(std::move(failure));
  if (why || committed || static_cast<int>(failures_.size()) < places_) return why;
  if (places_ == 1) return "the worker failed before its first step was committed: no other is started";
  return fmt::format("{} workers failed before the first step was committed: no others are started", failures_.size());
}

}  // namespace cohort::launch
