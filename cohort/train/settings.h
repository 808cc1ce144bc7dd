// Where a run's settings come from: a file, COHORT_TRAIN_<KEY> in the environment, `--set key=value`; a later one wins.
// Read the same way by the launcher, which checks them before anything starts, and by every rank.
#pragma once
#include <string>
#include <vector>

#include "cohort/train/config.h"

namespace cohort::train {

struct SettingsSource {
  std::string file;               // YAML; empty: the defaults
  std::vector<std::string> sets;  // "optimizer=adam(lr=1e-3)"
};

// Kind::usage with file, line and column, or the nearest name. Also checked for combinations that cannot be.
TrainConfig read_settings(const SettingsSource& source);
std::string show_settings(const SettingsSource& source);  // the same as YAML, each value with where it comes from

}  // namespace cohort::train
