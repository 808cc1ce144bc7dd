#include "cohort/observe/metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/observe/text.h"

namespace cohort::observe {
namespace {

std::string_view word_of(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::string value_text(const Field::Value& value) {
  struct Writer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(std::uint64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return json_number(v); }
    std::string operator()(const std::string& v) const { return json_text(v); }
  };
  return std::visit(Writer{}, value);
}

void check_names(std::span<const Field> fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& name = fields[i].name;
    if (name == "time" || name == "nonfinite")
      throw_failure(Kind::usage, "metrics: the field '{}' is written by the metrics file itself; give yours another name", name);
    for (std::size_t k = 0; k < i; ++k)
      if (fields[k].name == name) throw_failure(Kind::usage, "metrics: the field '{}' is given twice in one line", name);
  }
}

}  // namespace

std::string metrics_line(double now, std::span<const Field> fields) {
  check_names(fields);
  std::string line = fmt::format(R"({{"time":{})", std::isfinite(now) ? fmt::format("{:.6f}", now) : "null");
  std::string odd;
  for (const Field& field : fields) {
    const auto name = json_text(field.name);
    line += fmt::format(",{}:{}", name, value_text(field.value));
    const auto* real = std::get_if<double>(&field.value);
    if (real != nullptr && !std::isfinite(*real)) odd += fmt::format(R"({}{}:"{}")", odd.empty() ? "" : ",", name, word_of(*real));
  }
  if (!odd.empty()) line += fmt::format(R"(,"nonfinite":{{{}}})", odd);
  return line + "}\n";
}

double unix_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

MetricsFile::MetricsFile(std::string path, std::function<double()> clock)
    : clock_(std::move(clock)), file_(AppendFile::resume(std::move(path), '\n')) {}

void MetricsFile::write(std::span<const Field> fields) {
  const auto line = metrics_line(clock_(), fields);
  const std::lock_guard lock(mutex_);
  file_.append(line);
}

std::uint64_t MetricsFile::lost() const {
  const std::lock_guard lock(mutex_);
  return file_.lost();
}

}  // namespace cohort::observe
