// A small chart as SVG text: bandwidth by size, one line per implementation, both axes logarithmic. No library, no script inside.
// Threads: pure.
#pragma once
#include <string>
#include <vector>

namespace cohort::bench {

struct ChartPoint {
  double bytes = 0;
  double gigabytes_per_second = 0;
};
struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;
};

std::string bandwidth_chart(const std::string& title, const std::vector<ChartLine>& lines);

}  // namespace cohort::bench
