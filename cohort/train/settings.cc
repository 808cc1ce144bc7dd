#include "cohort/train/settings.h"

#include <cstdlib>

namespace cohort {

TrainConfig read_settings(const SettingsSource& source) {
  TrainConfig values;
  Config config(values);
  if (!source.file.empty()) config.read_file(source.file);
  config.read_environment("COHORT_TRAIN_", [](const char* name) -> const char* { return std::getenv(name); });
  for (const auto& set : source.sets) config.set(set);
  check(values);
  return values;
}

}  // namespace cohort
