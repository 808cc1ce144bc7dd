#include "cohort/observe/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cohort/observe/table.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

constexpr std::size_t kMostPoints = 600;  // about one per pixel of the drawing
constexpr std::size_t kMeans = 200;       // of a longer series
constexpr int kColors = 6;
// The drawing's own units; the page scales it.
constexpr double kWidth = 640, kHeight = 280, kLeft = 54, kRight = 14, kTop = 10, kBottom = 38;

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double from = 0, to = 1;  // on the drawing
  double place(double value) const {
    const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
  bool shows(double value) const { return std::isfinite(value) && (!log || value > 0); }
};

struct Scale {
  double divide = 1;
  std::string name;
};

Scale wall_scale(double seconds) {
  if (seconds >= 7200) return {3600, "wall time (h)"};
  if (seconds >= 120) return {60, "wall time (min)"};
  return {1, "wall time (s)"};
}

double longest_wall(const std::vector<Series>& all) {
  double longest = 0;
  for (const auto& s : all)
    for (const double w : s.wall) longest = std::max(longest, w);
  return longest;
}

void over_wall(std::vector<Series>& all, double divide) {
  for (auto& s : all) {
    s.x = s.wall;
    for (double& w : s.x) w /= divide;
  }
}

// low and high over all values that can be shown, with some air above and below.
void fit(Axis& axis, const std::vector<Series>& all, bool of_x) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& s : all)
    for (const double v : of_x ? s.x : s.y)
      if (axis.shows(v)) low = std::min(low, v), high = std::max(high, v);
  if (low > high) low = axis.log ? 0.1 : 0, high = 1;
  if (axis.log) {
    const double air = std::max(std::pow(high / low, 0.05), 1.05);
    axis.low = low / air, axis.high = high * air;
    return;
  }
  double air = of_x ? 0 : 0.05 * (high - low);
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) air = low == 0 ? 1 : 0.1 * std::abs(low);
  axis.low = low >= 0 && low < air ? 0 : low - air;  // a curve that nearly touches zero stands on it
  axis.high = high + air;
}

std::string line_path(const Series& s, const Axis& x, const Axis& y) {
  std::string out;
  bool pen_down = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    if (!y.shows(s.y[i])) {
      pen_down = false;
      continue;
    }
    const bool alone = !pen_down && (i + 1 == s.x.size() || !y.shows(s.y[i + 1]));
    out += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.place(s.x[i]), y.place(s.y[i]));
    if (alone) out += "h0.1";  // a lone point: the round cap of an almost empty line
    pen_down = true;
  }
  return out;
}

void draw_axes(std::string& out, const Axis& x, const Axis& y, const std::string& x_name, const std::string& unit) {
  for (const double t : y.log ? log_ticks(y.low, y.high) : nice_ticks(y.low, y.high, 5)) {
    out += fmt::format(R"(<line class="grid" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>)", x.from, y.place(t), x.to, y.place(t));
    out += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>)", x.from - 6, y.place(t) + 4, tick_label(t));
  }
  for (const double t : nice_ticks(x.low, x.high, 6)) {
    out += fmt::format(R"(<line class="mark" x1="{:.1f}" y1="{}" x2="{:.1f}" y2="{}"/>)", x.place(t), y.from, x.place(t), y.from + 4);
    out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", x.place(t), y.from + 17, tick_label(t));
  }
  out += fmt::format(R"(<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>)", x.from, y.from, x.to, y.from);
  out += fmt::format(R"(<text class="name" x="{}" y="{}" text-anchor="end">{}</text>)", x.to, kHeight - 4, html_text(x_name));
  if (!unit.empty()) out += fmt::format(R"(<text class="name" x="{}" y="{}">{}</text>)", x.from + 6, kTop + 8, html_text(unit));
}

std::string numbers(const std::vector<double>& values) {
  std::string out;
  for (const double v : values) out += (out.empty() ? "" : ",") + (std::isfinite(v) ? fmt::format("{:.6g}", v) : "null");
  return "[" + out + "]";
}

// What the script needs to show values under the pointer.
std::string data_json(const std::vector<Series>& all, const Axis& x, const Axis& y, const std::string& x_name) {
  std::string series;
  for (const auto& s : all)
    series += fmt::format("{}{{\"name\":{},\"x\":{},\"y\":{}}}", series.empty() ? "" : ",", json_text(s.name), numbers(s.x), numbers(s.y));
  const auto axis = [](const Axis& a) {
    return fmt::format("{{\"low\":{},\"high\":{},\"from\":{},\"to\":{},\"log\":{}}}", json_number(a.low), json_number(a.high), a.from, a.to,
                       a.log);
  };
  return fmt::format("{{\"x\":{},\"y\":{},\"xName\":{},\"series\":[{}]}}", axis(x), axis(y), json_text(x_name), series);
}

}  // namespace

bool has_wall(const Chart& chart) {
  return !chart.series.empty() && std::all_of(chart.series.begin(), chart.series.end(), [](const Series& s) { return !s.wall.empty(); });
}

std::string chart_html(const Chart& chart, XAxis which) {
  std::vector<Series> all, lines;  // every value within the drawing's grain, and what is drawn bold
  for (const auto& s : chart.series) {
    all.push_back(downsampled(s, kMostPoints));
    lines.push_back(s.x.size() > kMostPoints ? averaged(s, kMeans) : all.back());
  }
  std::string x_name = chart.x_name;
  if (which == XAxis::wall) {
    const auto scale = wall_scale(longest_wall(all));
    x_name = scale.name;
    over_wall(all, scale.divide);
    over_wall(lines, scale.divide);
  }
  Axis x{.from = kLeft, .to = kWidth - kRight};
  Axis y{.log = chart.log_y, .from = kHeight - kBottom, .to = kTop};
  fit(x, all, true);
  fit(y, all, false);
  std::string out = fmt::format(R"(<div class="plot {}"><svg viewBox="0 0 {} {}" role="img" aria-label="{}">)",
                                which == XAxis::wall ? "by-wall" : "by-step", kWidth, kHeight, html_text(chart.title));
  draw_axes(out, x, y, x_name, chart.unit);
  bool any = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto path = line_path(lines[i], x, y);
    any = any || !path.empty();
    if (chart.series[i].x.size() > kMostPoints)
      out += fmt::format(R"(<path class="line range s{}" d="{}"/>)", static_cast<int>(i) % kColors, line_path(all[i], x, y));
    out += fmt::format(R"(<path class="line s{}" d="{}"/>)", static_cast<int>(i) % kColors, path);
  }
  if (!any) out += fmt::format(R"(<text class="none" x="{}" y="{}" text-anchor="middle">no values</text>)", kWidth / 2, kHeight / 2);
  return out + fmt::format("</svg><script type=\"application/json\">{}</script></div>", data_json(lines, x, y, x_name));
}

}  // namespace cohort::observe
