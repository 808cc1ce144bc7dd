#include "cohort/launch/worker_failures.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <csignal>

namespace cohort::launch {
namespace {

// What ends a traceback or a report is what names the error.
std::string error_of(const WorkerFailure& failure) { return failure.last_lines.empty() ? "" : without_numbers(failure.last_lines.back()); }

bool same_error(const WorkerFailure& a, const WorkerFailure& b) { return a.status == b.status && error_of(a) == error_of(b); }

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

bool WorkerFailures::is_own(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

std::optional<std::string> WorkerFailures::add(WorkerFailure failure, bool committed) {
  const auto earlier =
      std::ranges::find_if(failures_, [&](const WorkerFailure& f) { return same_error(f, failure) && follows(failure, f); });
  std::optional<std::string> why;
  if (earlier != failures_.end())
    why = fmt::format(
        "{} ended with the same error as {} before it, and so would the next one: the job stops; what the error names is to be mended (the "
        "program, its data, this machine) before it is started again",
        failure.name, earlier->name);
  failures_.push_back(std::move(failure));
  if (why || committed || static_cast<int>(failures_.size()) < places_) return why;
  if (places_ == 1) return "the worker failed before its first step was committed: no other is started";
  return fmt::format("{} workers failed before the first step was committed: no others are started", failures_.size());
}

}  // namespace cohort::launch
