#include "cohort/cli/run_report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <regex>

#include "cohort/base/text.h"
#include "cohort/cli/cli.h"

namespace cohort::cli {
namespace {

constexpr std::size_t kTailLines = 10;
constexpr std::size_t kTailLineBytes = 300;

}  // namespace

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  return fmt::format("killed by {}{}", signal_name(WTERMSIG(status)), WCOREDUMP(status) ? " (core dumped)" : "");
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kExitSignalBase + WTERMSIG(status); }

void Tail::add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      if (!lines_.back().empty()) lines_.emplace_back();
      if (lines_.size() > kTailLines + 1) lines_.pop_front();
    } else if (lines_.back().size() < kTailLineBytes) {
      lines_.back() += c;
    }
  }
}

std::vector<std::string> Tail::lines() const {
  std::vector<std::string> all;
  for (const auto& line : lines_)
    if (!line.empty()) all.push_back(printable(line, kTailLineBytes));
  return all;
}

int blames(const std::vector<std::string>& last_words, int rank) {
  static const std::regex kLoss(R"(\brank (\d{1,9}) (at \S+ )?(left|died|aborted)\b)");
  for (auto line = last_words.rbegin(); line != last_words.rend(); ++line)
    if (std::smatch found; std::regex_search(*line, found, kLoss))
      if (const int other = std::stoi(found[1]); other != rank) return other;
  return -1;
}

std::string tell(const FirstFailure& f) {
  std::string text =
      fmt::format("cohort run: rank {}{} failed first: {} (pid {}, after {})", f.rank,
                  f.host.empty() ? "" : fmt::format(" on host {}", f.host), describe_status(f.status), f.pid, format_seconds(f.after));
  if (f.others_stopped > 0)
    text += fmt::format("; the {} still running {} stopped", f.others_stopped, f.others_stopped == 1 ? "was" : "were");
  text += "\n";
  if (!f.last_words.empty()) text += "  its last words on stderr:\n";
  for (const auto& line : f.last_words) text += fmt::format("    {}\n", line);
  return text;
}

}  // namespace cohort::cli
