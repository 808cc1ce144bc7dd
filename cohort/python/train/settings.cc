#include "cohort/python/train/settings.h"

#include <cstdlib>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/sync/strategy.h"

namespace cohort::python {
namespace {

void refuse_other_model(const Config& config, const std::string& model) {
  for (const Field& field : config.all()) {
    const bool names_model = field.path == "model", names_data = field.path == "data.train" || field.path == "data.test";
    if (field.source == Source::preset || !(names_model || names_data)) continue;
    if (field.text() == (names_model ? model : "own") || (names_data && field.text().empty())) continue;
    throw_failure(Kind::usage, "{}: {} is not for cohort.Trainer, which trains the model on the data sets that it is given", field.where,
                  field.path);
  }
}

}  // namespace

TrainConfig read_trainer_settings(const std::string& file, const Assignments& assignments, const std::string& model) {
  TrainConfig values;
  values.data.transforms = "";
  Config config(values);
  if (!file.empty()) {
    if (!std::filesystem::exists(file)) throw_failure(Kind::usage, "there is no file {}", file);
    config.read_file(file);
  }
  for (const auto& [key, value] : assignments) config.set(key, value, Source::file, "cohort.Trainer");
  config.read_environment("COHORT_TRAIN_", [](const char* name) -> const char* { return std::getenv(name); });
  refuse_other_model(config, model);
  values.data.test = "";
  train::check(values);
  if (values.sync_batch_norm)
    throw_failure(Kind::usage,
                  "sync_batch_norm is for built-in models: in a model of Python use cohort.torch.SyncBatchNorm, after cohort.torch.init()");
  sync::make(values.sync);  // throws for one that is not there
  return values;
}

std::string settings_text(TrainConfig config) { return Config(config).yaml(); }

}  // namespace cohort::python
