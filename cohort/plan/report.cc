#include "cohort/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/observe/table.h"

namespace cohort::plan {
namespace {

using nlohmann::ordered_json;

constexpr MemoryClass kShown[] = {MemoryClass::parameters,  MemoryClass::gradients, MemoryClass::optimizer,  MemoryClass::master,
                                  MemoryClass::activations, MemoryClass::buckets,   MemoryClass::temporaries};
constexpr double kMiB = 1024.0 * 1024;

double elements(const ModelProfile& profile) {
  double sum = 0;
  for (const auto& p : profile.parameters) sum += static_cast<double>(p.elements);
  return sum;
}

double samples_per_s(const PlanInput& f, const Choice& c) { return static_cast<double>(f.batch) * f.accumulate * f.links.ranks / c.step(); }
bool fits(const PlanInput& f, const Choice& c) { return f.memory <= 0 || c.total() <= f.memory; }

std::string title(const PlanInput& f) {
  return fmt::format("{}: {:.4g} M parameters, {:.4g} GFLOP a rank and step; {} rank{} x {} samples{}\n{}; {}\n", f.model,
                     elements(f.profiles[0]) / 1e6, f.profiles[0].flops * f.accumulate / 1e9, f.links.ranks, f.links.ranks == 1 ? "" : "s",
                     f.batch, f.accumulate > 1 ? fmt::format(" x {}", f.accumulate) : "", f.how, f.links.text());
}

ordered_json class_bytes(const std::array<double, kMemoryClasses>& bytes) {
  ordered_json out;
  for (const MemoryClass which : kShown)
    out[std::string(memory_class_name(which))] = static_cast<std::int64_t>(bytes[static_cast<std::size_t>(which)]);
  return out;
}

ordered_json choice_json(const PlanInput& f, const Choice& c) {
  return {{"model", f.model},
          {"ranks", f.links.ranks},
          {"batch", f.batch},
          {"stage", c.stage},
          {"recompute", c.recompute},
          {"bytes", class_bytes(c.bytes)},
          {"total_bytes", static_cast<std::int64_t>(c.total())},
          {"fits", fits(f, c)},
          {"compute_s", c.compute},
          {"exposed_s", c.exposed},
          {"hidden_s", c.hidden},
          {"step_s", c.step()},
          {"samples_per_s", samples_per_s(f, c)}};
}

// A batch decides over activations and what comes and goes; the rest is of the model, and shared by the ranks.
std::string what_to_try(const PlanInput& f, const Choice& least) {
  const double of_batch = least.at(MemoryClass::activations) + least.at(MemoryClass::temporaries);
  if (least.total() - of_batch > f.memory)
    return fmt::format("more ranks (--ranks: they share the model's {}) or a smaller model; a smaller batch is not enough",
                       format_bytes(static_cast<std::size_t>(least.total() - of_batch)));
  return fmt::format("a smaller data.batch than {} (data.accumulate keeps the step as large), precision: bf16, or more ranks (--ranks)",
                     f.batch);
}

std::string off(double predicted, double measured) { return measured > 0 ? fmt::format("{:+.1f}", 100 * (predicted / measured - 1)) : ""; }

}  // namespace

std::string plan_text(const PlanInput& plan_input, const std::vector<Choice>& all) {
  observe::Table table;
  table.columns = {{"stage"}, {"recompute", "", observe::Align::left}};
  for (const MemoryClass which : kShown) table.columns.push_back({std::string(memory_class_name(which)), "MiB"});
  for (const char* name : {"total", "compute", "exposed", "hidden", "step"})
    table.columns.push_back({name, std::string(name) == "total" ? "MiB" : "ms"});
  table.columns.push_back({"samples/s"});
  if (plan_input.memory > 0) table.columns.push_back({"fits", "", observe::Align::left});
  for (const Choice& c : all) {
    std::vector<std::string> row{std::to_string(c.stage), c.recompute};
    for (const MemoryClass which : kShown) row.push_back(observe::cell(c.at(which) / kMiB));
    row.push_back(observe::cell(c.total() / kMiB));
    for (const double seconds : {c.compute, c.exposed, c.hidden, c.step()}) row.push_back(observe::cell(seconds * 1e3));
    row.push_back(observe::cell(samples_per_s(plan_input, c)));
    if (plan_input.memory > 0) row.emplace_back(fits(plan_input, c) ? "yes" : "no");
    table.add(std::move(row));
  }
  std::string text = title(plan_input) + "\n" + observe::table_text(table) + "\n";
  for (const auto& note : plan_input.notes) text += "note: " + note + "\n";
  return text + verdict(plan_input, all);
}

std::string plan_lines(const PlanInput& plan_input, const std::vector<Choice>& all) {
  std::string lines;
  for (const Choice& c : all) lines += choice_json(plan_input, c).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return lines;
}

bool anything_fits(const PlanInput& plan_input, const std::vector<Choice>& all) {
  return std::any_of(all.begin(), all.end(), [&](const Choice& c) { return fits(plan_input, c); });
}

std::string verdict(const PlanInput& plan_input, const std::vector<Choice>& all) {
  std::vector<const Choice*> able;
  for (const Choice& c : all)
    if (fits(plan_input, c)) able.push_back(&c);
  const auto lighter = [](const Choice* a, const Choice* b) { return a->total() < b->total(); };
  const auto named = [](const Choice& c) { return fmt::format("stage {}, recompute {}", c.stage, c.recompute); };
  if (able.empty()) {
    const Choice& least = *std::min_element(all.begin(), all.end(), [&](const Choice& a, const Choice& b) { return lighter(&a, &b); });
    return fmt::format("nothing fits {}: the least is {} with {}\ntry {}\n", format_bytes(static_cast<std::size_t>(plan_input.memory)),
                       named(least), format_bytes(static_cast<std::size_t>(least.total())), what_to_try(plan_input, least));
  }
  const Choice& fastest = **std::min_element(able.begin(), able.end(), [](auto* a, auto* b) { return a->step() < b->step(); });
  const Choice& least = **std::min_element(able.begin(), able.end(), lighter);
  std::string text;
  if (plan_input.memory > 0)
    text += fmt::format("{} of {} fit {}\n", able.size(), all.size(), format_bytes(static_cast<std::size_t>(plan_input.memory)));
  text += fmt::format("fastest: {}, {} a step: {:.0f} % of it computes, {} of communication is exposed and {} hidden\n", named(fastest),
                      format_seconds(Seconds(fastest.step())), 100 * fastest.compute / fastest.step(),
                      format_seconds(Seconds(fastest.exposed)), format_seconds(Seconds(fastest.hidden)));
  if (&least != &fastest)
    text += fmt::format("least memory: {}, {} ({:.0f} % of the fastest's), {:.2f} times its step\n", named(least),
                        format_bytes(static_cast<std::size_t>(least.total())), 100 * least.total() / fastest.total(),
                        least.step() / fastest.step());
  return text;
}

std::string forecast_json(const PlanInput& plan_input, const Choice& choice) { return choice_json(plan_input, choice).dump() + "\n"; }

Comparison compare(const std::string& forecast_json, const MeasuredStep& measured_step) {
  const auto predicted = ordered_json::parse(forecast_json, nullptr, false);
  if (predicted.is_discarded() || !predicted.contains("bytes") || !predicted.contains("step_s"))
    throw_failure(Kind::corrupt, "'{}' is no forecast of `cohort plan`", printable(forecast_json));
  observe::Table table{.columns = {{"", "", observe::Align::left}, {"predicted"}, {"measured"}, {"off", "%"}}};
  ordered_json json{{"predicted", predicted}};
  const auto line = [&](const std::string& name, double p, double m, double unit) {
    table.add({name, observe::cell(p / unit), observe::cell(m / unit), off(p, m)});
  };
  double total = 0, measured_total = 0;
  for (const MemoryClass which : kShown) {
    const double p = predicted["bytes"].value(std::string(memory_class_name(which)), 0.0),
                 m = measured_step.bytes[static_cast<std::size_t>(which)];
    total += p;
    measured_total += m;
    if (p > 0 || m > 0) line(std::string(memory_class_name(which)) + ", MiB", p, m, kMiB);
  }
  line("memory of a rank, MiB", total, measured_total, kMiB);
  line("step, ms", predicted["step_s"], measured_step.quiet_seconds, 1e-3);
  json["measured"] = {{"bytes", class_bytes(measured_step.bytes)},
                      {"total_bytes", static_cast<std::int64_t>(measured_total)},
                      {"step_s", measured_step.seconds},
                      {"quiet_step_s", measured_step.quiet_seconds}};
  json["memory_ratio"] = measured_total > 0 ? total / measured_total : 0;
  json["step_ratio"] = measured_step.quiet_seconds > 0 ? predicted["step_s"].get<double>() / measured_step.quiet_seconds : 0;
  return {"predicted against measured (a step of the fastest tenth: the machine at its quietest)\n" + observe::table_text(table),
          json.dump(2) + "\n"};
}

}  // namespace cohort::plan
