// What a Predictor takes beside single pictures: folders of them and tables; and a prediction for each of their samples.
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "cohort/base/error.h"
#include "cohort/base/spec.h"
#include "cohort/train/loop/checkpoint_manager.h"
#include "cohort/train/loop/predictor.h"

namespace cohort::train {
namespace {

void set_param(Spec& spec, const std::string& key, const std::string& value) {
  for (auto& param : spec.params)
    if (param.key == key) {
      param = {.key = key, .value = value};
      return;
    }
  spec.params.push_back({.key = key, .value = value});
}

// The training set's spec with another file: label, columns and separator are the same. Every line gets its prediction.
Spec table_spec(const checkpoint::Manifest& m, const std::string& path) {
  const auto trained_on = m.texts.find(kTrainedOnText);
  Spec spec = trained_on == m.texts.end() ? Spec{.name = "csv"} : Spec::parse(trained_on->second);
  if (spec.name != "csv" && spec.name != "csv_text" && spec.name != "wordpiece") spec = {.name = "csv"};
  spec.text.clear();
  set_param(spec, "file", path);
  if (const auto* missing = spec.find("missing"); missing != nullptr && missing->value == "drop") set_param(spec, "missing", "mean");
  return spec;
}

}  // namespace

std::shared_ptr<const data::Dataset> Predictor::open(const std::string& path) const {
  Spec spec;
  if (std::filesystem::is_directory(path)) {
    if (form_.input != data::Input::pixels)
      throw_failure(Kind::usage, "model '{}' reads {}, not folders of pictures: {}", spec_, data::name_of(form_.input), path);
    spec.name = "folder";
    set_param(spec, "dir", path);
    set_param(spec, "size", fmt::format("{}x{}", form_.shape[1], form_.shape[2]));
    set_param(spec, "channels", std::to_string(form_.shape[0]));
  } else {
    spec = table_spec(found_.manifest, path);
  }
  auto set = data::open_dataset(spec.to_string(), form_);
  check_form(set->form(), path);
  return set;
}

std::string Predictor::trained_on() const {
  const auto at = found_.manifest.texts.find(kTrainedOnText);
  return at == found_.manifest.texts.end() ? "" : at->second;
}

at::Tensor Predictor::forward(const at::Tensor& inputs) const {
  const torch::NoGradGuard no_grad;
  return model_.forward(inputs);
}

std::vector<std::string> Predictor::target_names() const {
  if (std::ssize(form_.names) == form_.targets) return form_.names;
  if (form_.targets == 1) return {"value"};
  std::vector<std::string> names;
  for (std::int64_t i = 1; i <= form_.targets; ++i) names.push_back(fmt::format("value_{}", i));
  return names;
}

std::string Predictor::class_name(std::int64_t label) const {
  const bool named = label >= 0 && label < std::ssize(form_.names);
  return named ? form_.names[static_cast<std::size_t>(label)] : fmt::format("{}", label);
}

Prediction Predictor::prediction_of(const data::Dataset& set, std::int64_t index, const at::Tensor& outputs, const at::Tensor& labels,
                                    int top) const {
  const auto numbers = [](const at::Tensor& row) {
    const at::Tensor all = row.to(torch::kDouble).contiguous();
    return std::vector<double>(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
  };
  const std::string where = set.where(index);
  const bool file = std::filesystem::path(where).has_filename() && std::filesystem::exists(where);
  Prediction prediction{.place = file ? where : fmt::format("{}", index + 1)};
  if (regression()) {
    prediction.values = numbers(outputs);
    if (labels.defined()) prediction.targets = numbers(labels);
    return prediction;
  }
  if (outputs.dim() != 1)
    throw_failure(Kind::usage, "model '{}' predicts {} values for each sample in {} dimensions, not one class", spec_, outputs.numel(),
                  outputs.dim());
  prediction.guesses = guesses_of(outputs, top);
  if (labels.defined()) prediction.label = class_name(labels.item<std::int64_t>());
  return prediction;
}

}  // namespace cohort::train
