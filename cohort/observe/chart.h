// Curves as SVG, drawn here: no script is needed to see them, and a page with a hundred thousand points stays small.
// Colours, fonts and line widths are classes (s0, s1, ... grid, axis); the page that holds the drawing styles them (report_page.h).
// Owner: values. Threads: pure functions. Failure: Kind::usage naming a series whose x and y differ in length.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace cohort::observe {

struct Series {
  std::string name;
  std::vector<double> x;       // steps or epochs
  std::vector<double> y;       // nan leaves a gap
  std::vector<double> wall{};  // seconds since the start at the same points; empty when unknown
};

struct Chart {
  std::string title;
  std::vector<Series> series;
  std::string unit{};           // of y: "samples/s", "%"
  std::string x_name = "step";  // or "epoch"
  bool log_y = false;           // values at or below 0 leave a gap
};

// At most about `most` points, in the order of x. Of every stretch the lowest and the highest stay, so a spike is never lost.
Series downsampled(const Series& series, std::size_t most);
// The mean of each of `stretches` stretches of equally many points; nan values do not count, and a stretch of nothing else is a gap.
Series averaged(const Series& series, std::size_t stretches);

// Round numbers (1, 2, 2.5, 5 times a power of ten) from low to high, about `wanted` of them.
std::vector<double> nice_ticks(double low, double high, int wanted);
std::vector<double> log_ticks(double low, double high);  // powers of ten; with 2 and 5 between where those are few
std::string tick_label(double value);                    // "0.3", "20k", "1e-05"

enum class XAxis { step, wall };
bool has_wall(const Chart& chart);  // every series knows its times

// A series of more points than the drawing has pixels is drawn as its mean, which the pointer also reads, before its faint full range.
// One <div class="plot"> with the drawing and, for the script of the page, its numbers.
std::string chart_html(const Chart& chart, XAxis axis);

}  // namespace cohort::observe
