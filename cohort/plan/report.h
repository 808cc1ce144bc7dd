// What `cohort plan` prints: the table, its verdict, the same as JSON, and a forecast beside what was then measured.
// Threads: pure functions. Failure: Kind::corrupt for JSON that is no forecast.
#pragma once
#include <string>
#include <vector>

#include "cohort/plan/choices.h"

namespace cohort::plan {

std::string plan_text(const PlanInput& plan_input, const std::vector<Choice>& all);
std::string plan_lines(const PlanInput& plan_input, const std::vector<Choice>& all);  // one JSON object a line: a choice each

// What a run keeps of its forecast: one choice, to be compared with its MeasuredStep.
std::string forecast_json(const PlanInput& plan_input, const Choice& choice);

struct MeasuredStep {
  double seconds = 0;        // a step: the median
  double quiet_seconds = 0;  // a step of the fastest tenth: what it takes when nothing else uses the machine
  std::array<double, kMemoryClasses> bytes{};
};
struct Comparison {
  std::string text;  // a table for people
  std::string json;  // both, and their quotients
};
Comparison compare(const std::string& forecast_json, const MeasuredStep& measured_step);

}  // namespace cohort::plan
