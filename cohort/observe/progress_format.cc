#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cohort/base/text.h"
#include "cohort/observe/progress.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

constexpr std::size_t kWidestBar = 60;  // on very wide terminals a longer bar says nothing more
constexpr std::size_t kShortestBar = 4;

std::string details(const ProgressState& s) {
  std::string out = fmt::format("[{}", format_clock(s.elapsed));
  if (s.total > 0) {
    const auto left = static_cast<double>(s.total - std::min(s.done, s.total));
    out += fmt::format("<{}", s.steps_per_second > 0 ? format_clock(left / s.steps_per_second) : left > 0 ? "?" : "00:00");
  }
  if (s.rate > 0 && std::isfinite(s.rate)) out += fmt::format(", {}", format_rate(s.rate, printable(s.unit)));
  for (const auto& [name, value] : s.values) out += fmt::format(", {}={:.3g}", printable(name), value);
  return out + "]";
}

}  // namespace

std::string format_clock(double seconds) {
  if (!(seconds >= 0) || seconds > 1e7) return "?";
  const auto all = std::llround(seconds);
  const auto h = all / 3600;
  const auto m = all / 60 % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, all % 60) : fmt::format("{:02}:{:02}", m, all % 60);
}

std::string format_rate(double rate, std::string_view unit) {
  constexpr std::array<std::string_view, 5> kScales{" ", " k ", " M ", " G ", " T "};
  std::size_t scale = 0;
  while (rate >= 999.5 && scale + 1 < kScales.size()) rate /= 1000, ++scale;
  const int decimals = rate < 9.995 ? 2 : rate < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}{}/s", rate, decimals, kScales[scale], unit);
}

std::string format_bar(double share, std::size_t width, bool ascii) {
  constexpr std::array<std::string_view, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double sound = share > 0 ? std::min(share, 1.0) : 0;  // nan is nothing
  const auto eighths = static_cast<std::size_t>(sound * static_cast<double>(width) * 8);
  const auto full = eighths / 8;
  std::string out;
  for (std::size_t i = 0; i < full; ++i) out += ascii ? "#" : "█";
  if (!ascii && full < width) out += kEighths[eighths % 8];
  return pad_right(out, width);
}

std::string format_progress(const ProgressState& s, const ProgressStyle& look) {
  std::string head = printable(s.label);
  if (s.total == 0) {
    head += fmt::format("{}{} {}", head.empty() ? "" : "  ", s.done, details(s));
    return look.bar ? clip(head, look.width) : head;
  }
  const double share = static_cast<double>(s.done) / static_cast<double>(s.total);
  head += fmt::format("{}{:3.0f}%", head.empty() ? "" : " ", std::floor(100 * std::min(share, 1.0)));
  const auto tail = fmt::format(" {}/{} {}", s.done, s.total, details(s));
  if (!look.bar) return head + tail;
  const auto taken = columns(head) + columns(tail) + 2;  // two strokes around the bar
  if (taken + kShortestBar > look.width) return clip(head + tail, look.width);
  const auto bar = format_bar(share, std::min(look.width - taken, kWidestBar), look.ascii);
  return look.color ? fmt::format("{}|\x1b[32m{}\x1b[0m|{}", head, bar, tail) : fmt::format("{}|{}|{}", head, bar, tail);
}

}  // namespace cohort::observe
