// The page a run leaves behind: one HTML file that opens anywhere, without network and without other files.
//   write_report(run + "/report.html", {.title = "mlp on fashion-mnist", .summary = ..., .charts = ..., .phases = ..., .ranks = ...});
// Curves are SVG drawn by chart.h; a short script of our own shows values under the pointer, and without it everything else is there still.
// Light or dark as the reader's system is. Text from outside is escaped, and the page forbids itself to load anything.
// Owner: rank 0, at the end of a run or every few minutes of it. Threads: pure; write_report replaces the file as a whole.
// Failure: Kind::usage for a series whose columns differ in length, Kind::system for the file.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/observe/chart.h"
#include "cohort/observe/phases.h"
#include "cohort/observe/table.h"

namespace cohort::observe {

struct RankPhases {
  std::string name;  // "rank 0"
  PhaseSeconds seconds;
};

// What is empty is left out of the page.
struct Report {
  std::string title;
  std::string subtitle{};                                         // "4 ranks on 2 hosts, 12 min, finished 2026-11-15 14:02"
  std::vector<std::pair<std::string, std::string>> highlights{};  // {"test accuracy", "91.2 %"}: large, at the top
  Table summary{};
  std::vector<Chart> charts{};
  std::vector<RankPhases> phases{};
  Table ranks{};
  std::string config{};  // as it was in effect
};

std::string report_html(const Report& report);
void write_report(const std::string& path, const Report& report);

}  // namespace cohort::observe
