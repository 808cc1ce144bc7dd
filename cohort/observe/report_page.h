// How the report looks and what moves in it: the style sheet and the script of the page. No other file is loaded.
// Owner: report.cc. Threads: constants. Failure: none.
#pragma once
#include <string_view>

namespace cohort::observe {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace cohort::observe
