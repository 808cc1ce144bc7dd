#include "cohort/bench/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"

namespace cohort::bench::doctor {

std::string_view level_name(Level level) {
  static constexpr std::string_view kNames[] = {"OK", "NOTE", "WARN", "FAIL"};
  return kNames[static_cast<int>(level)];
}

std::span<const HealthCheck> all_checks() {
  static constexpr HealthCheck kChecks[] = {
      {"processor", look_at_processor},
      {"topology", look_at_topology},
      {"memory", look_at_memory},
      {"load", look_at_load},
      {"clock", look_at_clock},
      {"sharing", look_at_shared_memory},
      {"limits", look_at_limits},
      {"scratch", look_at_scratch},
      {"network", look_at_network},
      {"tcp", look_at_congestion},
      {"torch", look_at_torch},
      {"worker", look_at_worker},
      {"mpi", look_at_mpi},
      {"backends", look_at_backends},
      {"gpu", look_at_gpu},
      {"calibration", look_at_calibration},
  };
  return kChecks;
}

Findings examine() {
  Findings findings;
  for (const HealthCheck& check : all_checks()) {
    try {
      check.look(findings);
    } catch (const std::exception& error) {
      findings.push_back({Level::warn, std::string(check.topic), fmt::format("could not be checked: {}", error.what()), ""});
    }
  }
  return findings;
}

std::string format_finding(const Finding& f) {
  auto text = fmt::format("{:<5} {:<12} {}\n", level_name(f.level), f.topic, f.text);
  if (!f.advice.empty()) text += fmt::format("{:<18} -> {}\n", "", f.advice);
  return text;
}

std::string format_summary(const Findings& findings) {
  const auto count = [&](Level level) {
    return std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.level == level; });
  };
  const auto verdict = count(Level::fail) > 0   ? "jobs will fail here until the FAIL lines are fixed"
                       : count(Level::warn) > 0 ? "jobs will run; the WARN lines say what will be slow or surprising"
                                                : "jobs will run well here";
  return fmt::format("{} fine, {} to know, {} warnings, {} failures: {}\n", count(Level::ok), count(Level::note), count(Level::warn),
                     count(Level::fail), verdict);
}

int exit_status(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.level == Level::fail; }) ? 1 : 0;
}

std::string setting_file(const std::string& path) {
  try {
    return std::string(trim(read_file(path)));
  } catch (const Failure&) {
    return {};
  }
}

}  // namespace cohort::bench::doctor
