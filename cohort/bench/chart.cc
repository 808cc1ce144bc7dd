#include "cohort/bench/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/text.h"

namespace cohort::bench {
namespace {

constexpr double kWidth = 760, kHeight = 440, kLeft = 80, kRight = 150, kTop = 50, kBottom = 60;
constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#66a182", "#8d6a9f", "#c98c2c"};

struct Axis {
  double low = 0, high = 1;  // log10
  double from = 0, to = 1;   // pixels
  double at(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

Axis spanning(double least, double most, double from, double to) {
  Axis axis{std::floor(std::log10(least)), std::ceil(std::log10(most)), from, to};
  if (axis.high <= axis.low) axis.high = axis.low + 1;
  return axis;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string words(double x, double y, const std::string& anchor, const std::string& text, const std::string& fill = "#333") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y, anchor, fill, escaped(text));
}

std::string frame(const Axis& x, const Axis& y, const std::vector<double>& sizes) {
  std::string out;
  for (double decade = y.low; decade <= y.high; ++decade) {
    const double value = std::pow(10, decade), at = y.at(value);
    out += fmt::format("<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n", x.from, x.to, at);
    out += words(x.from - 8, at + 4, "end", fmt::format("{:g} GB/s", value));
  }
  for (const double size : sizes) out += words(x.at(size), y.from + 20, "middle", format_bytes(static_cast<std::size_t>(size)));
  return out + words((x.from + x.to) / 2, y.from + 44, "middle", "bytes in each rank's buffer");
}

std::string curve(const ChartLine& line, const Axis& x, const Axis& y, const char* colour) {
  std::string path, dots;
  for (const ChartPoint& p : line.points) {
    path += fmt::format("{:.1f},{:.1f} ", x.at(p.bytes), y.at(p.gigabytes_per_second));
    dots +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x.at(p.bytes), y.at(p.gigabytes_per_second), colour);
  }
  const ChartPoint& last = line.points.back();
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/>\n{}", path, colour, dots) +
         words(x.at(last.bytes) + 10, y.at(last.gigabytes_per_second) + 4, "start", line.name, colour);
}

}  // namespace

std::string bandwidth_chart(const std::string& title, const std::vector<ChartLine>& lines) {
  std::vector<double> sizes, rates;
  for (const ChartLine& line : lines)
    for (const ChartPoint& p : line.points) sizes.push_back(p.bytes), rates.push_back(p.gigabytes_per_second);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out += fmt::format("<text x=\"{:.0f}\" y=\"28\" font-size=\"16\" fill=\"#111\">{}</text>\n", kLeft, escaped(title));
  if (sizes.empty()) return out + words(kWidth / 2, kHeight / 2, "middle", "nothing was measured") + "</svg>\n";
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  const Axis x = spanning(sizes.front(), sizes.back(), kLeft, kWidth - kRight), y = spanning(*least, *most, kHeight - kBottom, kTop);
  out += frame(x, y, sizes);
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].points.empty()) out += curve(lines[i], x, y, kColours[i % std::size(kColours)]);
  return out + "</svg>\n";
}

}  // namespace cohort::bench
