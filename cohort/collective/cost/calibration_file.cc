#include "cohort/collective/cost/calibration_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/collective/cost/cost.h"

namespace cohort::collective {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Empty: they can be used.
std::string objection(const std::string& path) {
  try {
    Calibration::load(path);
    const auto json = nlohmann::json::parse(read_file(path));
    const auto there = json.find("machine");
    if (there == json.end() || !there->is_string()) return "it does not say where it was measured";
    if (there->get<std::string>() != machine_text())
      return fmt::format("measured on {}, this is {}", there->get<std::string>(), machine_text());
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::string usual_calibration_folder() {
  const auto home = variable("HOME").empty() ? std::string("/tmp") : variable("HOME");
  const auto cache = variable("XDG_CACHE_HOME").empty() ? home + "/.cache" : variable("XDG_CACHE_HOME");
  return cache + "/cohort/";
}

std::string calibration_file(const std::string& folder, std::string_view transport) {
  return fmt::format("{}calibration-{}.json", folder, transport);
}

std::string processor_name() {
  const std::string info = read_file("/proc/cpuinfo");  // one string: the lines below point into it
  for (const auto line : split(info, '\n'))
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  return "unknown processor";
}

std::string machine_text() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return fmt::format("{}, {}, {} cores", host, processor_name(), sysconf(_SC_NPROCESSORS_ONLN));
}

std::string find_calibration(const std::string& wish, std::string_view transport) {
  if (wish.empty() || wish == "none") return {};
  if (!wish.ends_with('/')) return wish;
  const std::string path = calibration_file(wish, transport);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};  // nothing was measured: nothing to log
  const std::string why = objection(path);
  if (why.empty()) return path;
  log_debug("cost constants: the built-in ones, {} is not used: {}", path, why);
  return {};
}

}  // namespace cohort::collective
