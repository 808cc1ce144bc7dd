#include "cohort/train/loop/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/base/terminal_text.h"
#include "cohort/observe/report.h"
#include "cohort/observe/table.h"

namespace cohort::train {
namespace {

std::string received_text(const RunSummary& s) {
  return fmt::format("{:.3f} MB, {:.1f} % of all_reduce's", s.received / 1e6, 100 * s.received / s.all_reduce);
}

observe::Report report_of(const TrainConfig& config, const RunSummary& summary, const RunCurves& curves, std::size_t ranks) {
  observe::Report report{.title = config.name, .subtitle = fmt::format("{} on {} ranks, {:.0f} s", config.model, ranks, summary.seconds)};
  for (const MetricValue& metric : summary.test.metrics) report.highlights.push_back({"test " + metric.name, metric.text()});
  if (summary.samples_per_second > 0) report.highlights.push_back({"samples/s", fmt::format("{:.0f}", summary.samples_per_second)});
  report.highlights.push_back({"updates", fmt::format("{}", summary.steps - summary.skipped)});
  if (summary.skipped > 0 || summary.scale > 0) report.highlights.push_back({"steps left out", fmt::format("{}", summary.skipped)});
  if (summary.received > 0) report.highlights.push_back({"received a step", received_text(summary)});
  if (!summary.slow.empty()) report.highlights.push_back({"slow ranks", summary.slow});
  report.charts.push_back({.title = "Loss", .series = {curves.loss, curves.test_loss}});
  for (const auto& [name, percent, series] : curves.metrics)
    if (!series.x.empty()) report.charts.push_back({.title = "Test " + name, .series = {series}, .unit = percent ? "%" : ""});
  report.charts.push_back({.title = "Learning rate", .series = {curves.lr}});
  if (!curves.scale.x.empty()) report.charts.push_back({.title = "Loss scale", .series = {curves.scale}});
  if (!curves.disagreement.x.empty())
    report.charts.push_back({.title = "Disagreement of the replicas (share of the model's norm)", .series = {curves.disagreement}});
  if (!curves.residual.x.empty()) report.charts.push_back({.title = "Norm of what the codec keeps", .series = {curves.residual}});
  if (!curves.received.x.empty()) report.charts.push_back({.title = "Received a step", .series = {curves.received}, .unit = "MB"});
  report.charts.push_back({.title = "Speed", .series = {curves.rate}, .unit = "samples/s"});
  return report;
}

}  // namespace

RunCurves::RunCurves(std::span<const nn::Metric> of) {
  for (const nn::Metric& metric : of) metrics.push_back({metric.name, metric.percent, {"test " + metric.name, {}, {}, {}}});
}

void RunCurves::add_metric(std::size_t which, double step, double value, double seconds) {
  MetricCurve& curve = metrics[which];
  add(curve.series, step, curve.percent ? 100 * value : value, seconds);
}

void RunCurves::add(observe::Series& series, double step, double value, double seconds) {
  series.x.push_back(step);
  series.y.push_back(value);
  series.wall.push_back(seconds);
}

double RunCurves::load(const std::vector<nlohmann::json>& lines) {
  const auto number = [](const nlohmann::json& line, const char* key) { return line.contains(key) && line[key].is_number(); };
  const double begin = lines.empty() || !number(lines.front(), "time") ? 0 : lines.front()["time"].get<double>();
  const std::pair<observe::Series&, const char*> all[] = {{loss, "loss"},
                                                          {lr, "lr"},
                                                          {rate, "samples_per_s"},
                                                          {test_loss, "test_loss"},
                                                          {scale, "scale"},
                                                          {disagreement, "disagreement"},
                                                          {residual, "residual_norm"}};
  for (const auto& line : lines) {
    if (!number(line, "time")) continue;
    const double step = line["step"].get<double>(), seconds = line["time"].get<double>() - begin;
    for (const auto& [series, key] : all)
      if (number(line, key)) add(series, step, line[key].get<double>(), seconds);
    if (number(line, "received_bytes")) add(received, step, line["received_bytes"].get<double>() / 1e6, seconds);
    for (std::size_t k = 0; k < metrics.size(); ++k)
      if (const auto key = "test_" + metrics[k].name; number(line, key.c_str())) add_metric(k, step, line[key].get<double>(), seconds);
  }
  return !lines.empty() && number(lines.back(), "time") ? lines.back()["time"].get<double>() - begin : 0;
}

std::string write_run_report(const TrainConfig& config, const std::string& config_text, const RunSummary& summary, const RunCurves& curves,
                             std::span<const double> seconds) {
  const std::size_t ranks = seconds.size() / observe::kPhases;
  observe::Report report = report_of(config, summary, curves, ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    observe::RankPhases rank{.name = fmt::format("rank {}", r), .seconds = {}};
    for (std::size_t p = 0; p < observe::kPhases; ++p) rank.seconds.seconds[p] = seconds[r * observe::kPhases + p];
    report.phases.push_back(rank);
  }
  report.config = config_text;
  const std::string path = summary.folder + "/report.html";
  observe::write_report(path, report);
  return path;
}

std::string summary_text(const RunSummary& s) {
  const auto shares = s.phases.shares();
  observe::Table table{.columns = {{.name = "", .align = observe::Align::left}, {.name = ""}}};
  if (s.test.samples > 0) {
    for (const MetricValue& metric : s.test.metrics) table.add({"test " + metric.name, metric.text()});
    table.add({"test loss", fmt::format("{:.4f}", s.test.loss)});
  }
  table.add({"training loss", fmt::format("{:.4f}", s.train_loss)});
  table.add({"updates", fmt::format("{}", s.steps - s.skipped)});
  if (s.skipped > 0 || s.scale > 0) table.add({"steps left out", fmt::format("{}", s.skipped)});
  if (s.scale > 0) table.add({"loss scale", fmt::format("{}", s.scale)});
  if (s.received > 0) table.add({"received a step", received_text(s)});
  if (!s.slow.empty()) table.add({"slow ranks", s.slow});
  table.add({"time", fmt::format("{:.1f} s", s.seconds)});
  if (s.samples_per_second > 0) table.add({"samples/s", fmt::format("{:.0f}", s.samples_per_second)});
  for (std::size_t p = 0; p < observe::kPhases; ++p)
    table.add({fmt::format("time in {}", observe::kPhaseNames[p]), fmt::format("{:.1f} %", 100 * shares[p])});
  std::string text = observe::table_text(table);
  for (int line = 0; line < 2; ++line) text.erase(0, text.find('\n') + 1);  // columns without names need no head
  if (!s.report.empty()) text += fmt::format("report   {}\n", s.report);
  if (!s.trace.empty()) text += fmt::format("trace    {} (open it in ui.perfetto.dev)\n", s.trace);
  return terminal_text(text + fmt::format("run      {}\n", s.folder));
}

std::string not_saved_text(const RunSummary& summary) {
  return "the run ended, but its last checkpoint could not be written: " + summary.lost;
}

}  // namespace cohort::train
