#include "cohort/train/settings.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "cohort/base/error.h"

namespace cohort::train {

namespace {

[[noreturn]] void refuse_missing(const std::string& file) {
  const bool setting = file.find('=') != std::string::npos;
  throw_failure(Kind::usage, "there is no file {}{}", file, setting ? fmt::format("; a setting is given as --set {}", file) : "");
}

void read(const SettingsSource& source, Config& config) {
  if (!source.file.empty()) {
    if (!std::filesystem::exists(source.file)) refuse_missing(source.file);
    config.read_file(source.file);
  }
  config.read_environment("COHORT_TRAIN_", [](const char* name) -> const char* { return std::getenv(name); });
  for (const auto& set : source.sets) config.set(set);
}

}  // namespace

TrainConfig read_settings(const SettingsSource& source) {
  TrainConfig values;
  Config config(values);
  read(source, config);
  check(values);
  return values;
}

std::string show_settings(const SettingsSource& source) {
  TrainConfig values;
  Config config(values);
  read(source, config);
  check(values);
  return config.yaml();
}

}  // namespace cohort::train
