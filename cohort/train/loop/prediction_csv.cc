#include "cohort/train/loop/prediction_csv.h"

#include <fmt/format.h>

#include "cohort/base/terminal_text.h"

namespace cohort::train {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string for_reader(const std::string& line, CsvFor reader) { return (reader == CsvFor::terminal ? terminal_text(line) : line) + "\n"; }

}  // namespace

std::string csv_heading(const std::vector<std::string>& targets, bool folder, bool labelled, CsvFor reader) {
  std::string line = folder ? "file" : "row";
  if (targets.empty()) line += std::string(",prediction,probability") + (labelled ? ",label" : "");
  for (const std::string& name : targets) line += "," + csv_field(name);
  for (const std::string& name : targets) line += labelled ? "," + csv_field("true " + name) : "";
  return for_reader(line, reader);
}

std::string csv_line(const Prediction& p, CsvFor reader) {
  std::string line = csv_field(p.place);
  if (!p.guesses.empty()) line += fmt::format(",{},{:.6g}", csv_field(p.guesses[0].name), p.guesses[0].probability);
  for (const double value : p.values) line += fmt::format(",{:.9g}", value);
  for (const double value : p.targets) line += fmt::format(",{:.9g}", value);
  return for_reader(line + (p.label.empty() ? "" : "," + csv_field(p.label)), reader);
}

}  // namespace cohort::train
