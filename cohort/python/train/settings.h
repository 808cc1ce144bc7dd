// The settings of a run from Python: a YAML file, then what the program said itself, then COHORT_TRAIN_<KEY> in the environment, which
// wins. Owner: values. Threads: any. Failure: Kind::usage with the nearest name, as `cohort train`.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/config.h"

namespace cohort::python {

using Assignments = std::vector<std::pair<std::string, std::string>>;  // "data.batch" -> "32"

// Settings that name a model or data sets are refused, but for those that a run writes into its config.yaml: the program brings its own,
// a model called `model`. Images are not normalised unless a setting says so.
TrainConfig read_trainer_settings(const std::string& file, const Assignments& assignments, const std::string& model);
std::string settings_text(TrainConfig config);  // as YAML

}  // namespace cohort::python
