// Points and ticks: what to draw, before anything is drawn.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/observe/chart.h"

namespace cohort::observe {
namespace {

// Indices of the points to keep among order[from, to): lowest and highest y, in their order; one gap when there is a nan.
void keep_extremes(const Series& s, const std::vector<std::size_t>& order, std::size_t from, std::size_t to,
                   std::vector<std::size_t>& kept) {
  std::size_t low = to, high = to, gap = to;
  for (std::size_t i = from; i < to; ++i) {
    const double y = s.y[order[i]];
    if (!std::isfinite(y)) {
      gap = i;
      continue;
    }
    if (low == to || y < s.y[order[low]]) low = i;
    if (high == to || y > s.y[order[high]]) high = i;
  }
  std::array<std::size_t, 3> found{low, high, gap};
  std::sort(found.begin(), found.end());
  for (std::size_t k = 0; k < found.size(); ++k)
    if (found[k] != to && (k == 0 || found[k] != found[k - 1])) kept.push_back(order[found[k]]);
}

// Indices of the points that can be drawn, in the order of x.
std::vector<std::size_t> drawing_order(const Series& s) {
  if (s.x.size() != s.y.size() || (!s.wall.empty() && s.wall.size() != s.x.size()))
    throw_failure(Kind::usage, "series '{}' has {} x, {} y and {} wall times; they belong together point by point", s.name, s.x.size(),
                  s.y.size(), s.wall.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < s.x.size(); ++i)
    if (std::isfinite(s.x[i]) && (s.wall.empty() || std::isfinite(s.wall[i]))) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return s.x[a] < s.x[b]; });
  return order;
}

}  // namespace

Series downsampled(const Series& s, std::size_t most) {
  const auto order = drawing_order(s);
  std::vector<std::size_t> kept;
  if (order.size() <= std::max<std::size_t>(most, 4)) {
    kept = order;
  } else {
    const std::size_t stretches = std::max<std::size_t>(most / 2, 2) - 1;  // the first and the last point stay in any case
    kept.push_back(order.front());
    for (std::size_t b = 0; b < stretches; ++b) {
      const auto inner = order.size() - 2;
      keep_extremes(s, order, 1 + inner * b / stretches, 1 + inner * (b + 1) / stretches, kept);
    }
    kept.push_back(order.back());
  }
  Series out{.name = s.name, .x = {}, .y = {}};
  for (const auto i : kept) {
    out.x.push_back(s.x[i]);
    out.y.push_back(s.y[i]);
    if (!s.wall.empty()) out.wall.push_back(s.wall[i]);
  }
  return out;
}

Series averaged(const Series& s, std::size_t stretches) {
  const auto order = drawing_order(s);
  stretches = std::min(stretches, order.size());
  Series out{.name = s.name, .x = {}, .y = {}};
  for (std::size_t b = 0; b < stretches; ++b) {
    const auto from = order.size() * b / stretches;
    const auto to = order.size() * (b + 1) / stretches;
    double x = 0, y = 0, wall = 0, finite = 0;
    for (std::size_t i = from; i < to; ++i) {
      x += s.x[order[i]];
      if (!s.wall.empty()) wall += s.wall[order[i]];
      if (std::isfinite(s.y[order[i]])) y += s.y[order[i]], finite += 1;
    }
    const auto points = static_cast<double>(to - from);
    out.x.push_back(x / points);
    out.y.push_back(finite > 0 ? y / finite : std::nan(""));
    if (!s.wall.empty()) out.wall.push_back(wall / points);
  }
  return out;
}

std::vector<double> nice_ticks(double low, double high, int wanted) {
  if (!(high > low) || wanted < 1) return {low};
  const double rough = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0})
    if (factor * power >= rough * 0.999) step = factor * power;
  std::vector<double> out;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && out.size() < 100; ++k) out.push_back(k * step);
  return out;
}

std::vector<double> log_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const int decades = last - first;
  std::vector<double> out;
  for (int e = first; e <= last; e += 1 + decades / 7) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, e);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9) && (factor == 1.0 || high < 200 * low)) out.push_back(tick);
    }
  }
  return out;
}

std::string tick_label(double value) {
  const double size = std::abs(value);
  if (size < 1e-300) return "0";
  if (size >= 1e15) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.6g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.6g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.6g}k", value / 1e3);
  return fmt::format("{:.6g}", value);
}

}  // namespace cohort::observe
