#include "cohort/launch/failure_report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <regex>

#include "cohort/base/text.h"
#include "cohort/launch/exit_codes.h"

namespace cohort::launch {
namespace {

constexpr std::size_t kTailLines = 10;
constexpr std::size_t kTailLineBytes = 300;

// The backtrace in an error of torch: below the message, and longer than what is kept.
bool is_backtrace(std::string_view line) {
  return line.starts_with("frame #") || (line.starts_with("Exception raised from ") && line.ends_with("(most recent call first):"));
}

}  // namespace

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  return fmt::format("killed by {}{}", signal_name(WTERMSIG(status)), WCOREDUMP(status) ? " (core dumped)" : "");
}

std::string describe_end(int status, bool for_memory) {
  return describe_status(status) + (for_memory
                                        ? ", probably for want of memory: the kernel killed a process of its host for that; raise the "
                                          "memory limit or run fewer ranks there (`cohort plan` tells what training needs)"
                                        : "");
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status); }

void StderrTail::add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      if (is_backtrace(lines_.back())) lines_.back().clear();
      if (!lines_.back().empty()) lines_.emplace_back();
      if (lines_.size() > kTailLines + 1) lines_.pop_front();
    } else if (lines_.back().size() < kTailLineBytes) {
      lines_.back() += c;
    }
  }
}

std::vector<std::string> StderrTail::lines() const {
  std::vector<std::string> all;
  for (const auto& line : lines_)
    if (!line.empty()) all.push_back(printable(line, kTailLineBytes));
  return all;
}

int blamed_rank(const std::vector<std::string>& last_lines, int rank) {
  static const std::regex kLoss(
      R"(\brank (\d{1,9}) (at \S+ )?(left|died|aborted|ended the run|gave up its link)\b|\bfailed on rank (\d{1,9}), which reports the cause)");
  for (auto line = last_lines.rbegin(); line != last_lines.rend(); ++line)
    if (std::smatch found; std::regex_search(*line, found, kLoss))
      if (const int other = std::stoi(found[1].matched ? found[1] : found[4]); other != rank) return other;
  return -1;
}

std::string failure_text(const RankFailure& f) {
  std::string text =
      fmt::format("cohort run: {}{} failed first: {} (pid {}, after {})", f.name.empty() ? fmt::format("rank {}", f.rank) : f.name,
                  f.host.empty() ? "" : fmt::format(" on host {}", f.host), f.how.empty() ? describe_status(f.status) : f.how, f.pid,
                  format_seconds(f.after));
  if (f.others_stopped > 0)
    text += fmt::format("; the {} still running {} stopped", f.others_stopped, f.others_stopped == 1 ? "was" : "were");
  text += "\n";
  if (!f.last_lines.empty()) text += "  its last lines on stderr:\n";
  for (const auto& line : f.last_lines) text += fmt::format("    {}\n", line);
  return text;
}

RankFailure FailureLog::cause(const LastLines& last_lines_of) const {
  RankFailure cause = failures_.front();
  for (std::size_t looks = 0; looks < failures_.size(); ++looks) {
    const int other = blamed_rank(last_lines_of(cause.rank), cause.rank);
    const auto found = std::find_if(failures_.begin(), failures_.end(), [other](const RankFailure& f) { return f.rank == other; });
    if (found == failures_.end()) break;
    cause = *found;
  }
  cause.others_stopped = failures_.front().others_stopped;
  cause.last_lines = last_lines_of(cause.rank);
  return cause;
}

}  // namespace cohort::launch
