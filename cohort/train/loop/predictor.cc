#include "cohort/train/loop/predictor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/data/class_names.h"
#include "cohort/data/form_json.h"
#include "cohort/data/image.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/loss.h"
#include "cohort/nn/plugin.h"
#include "cohort/nn/zoo.h"
#include "cohort/train/loop/checkpoint_manager.h"

namespace cohort::train {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPictureBytes = 256_MiB;
constexpr std::int64_t kBatch = 256;  // samples a forward pass takes at once

checkpoint::Checkpoint find_checkpoint(const std::string& path) {
  const fs::path given = fs::path(path).lexically_normal();
  const fs::path one = given.filename().empty() ? given.parent_path() : given;  // "runs/x/" is "runs/x"
  const std::string beside = one.has_parent_path() ? one.parent_path().string() : ".";
  if (fs::exists(one / checkpoint::kManifestName)) return checkpoint::Store(beside, {.prepared = false}).verify(one.string());
  const fs::path folder = fs::is_directory(one / "checkpoints") ? one / "checkpoints" : one;
  if (!fs::is_directory(folder)) throw_failure(Kind::usage, "{} is neither the folder of a run nor of a checkpoint", path);
  const auto newest = fs::is_empty(folder) ? checkpoint::Newest{} : checkpoint::Store(folder.string(), {.prepared = false}).newest();
  for (const auto& refused : newest.refused)
    log_error("checkpoint {} is damaged and was passed over: {}", refused.path, refused.error.what);
  if (newest.checkpoint) return *newest.checkpoint;
  if (!newest.refused.empty()) throw_failure(Kind::corrupt, "{} holds damaged checkpoints only", folder.string());
  throw_failure(Kind::usage, "{} holds no checkpoint yet", folder.string());
}

std::string text_of(const checkpoint::Manifest& m, const std::string& key) {
  const auto at = m.texts.find(key);
  if (at == m.texts.end())
    throw_failure(Kind::usage, "the checkpoint's manifest says nothing about '{}': it was not written by cohort train", key);
  return at->second;
}

data::Form form_of(const checkpoint::Manifest& m, const std::string& where) {
  const auto at = m.values.find("data");
  if (at == m.values.end())
    throw_failure(Kind::usage, "the checkpoint's manifest does not describe its data: it was not written by cohort train");
  return data::form_of_json(at->second, where);
}

// One picture as a data set: what is read from a file goes through the same code as what was trained on.
data::MemoryDataset single(const data::Form& form, const std::string& source, std::vector<std::uint8_t> pixels) {
  std::vector<float> targets(static_cast<std::size_t>(form.targets));
  return {form, source, std::move(pixels), std::vector<std::int64_t>(form.targets > 0 ? 0 : 1), std::move(targets)};
}

data::Transforms transforms_of(const checkpoint::Manifest& m, const data::Form& form) {
  if (form.input == data::Input::tokens) return {};
  const auto blank = single(form, "a blank sample", std::vector<std::uint8_t>(static_cast<std::size_t>(form.bytes())));
  return data::Transforms::parse(text_of(m, "transforms"), blank).for_evaluation();  // nothing is left to measure
}

// The model of a run may be a plugin's.
checkpoint::Checkpoint with_plugins(checkpoint::Checkpoint found, const std::vector<std::string>& given) {
  if (text_of(found.manifest, "model") == kOwnModel)
    throw_failure(Kind::usage, "the run in {} trained a model that its program made itself: only that program can predict with it",
                  found.path);
  if (!given.empty()) return nn::load_plugins(given), found;
  const auto config = found.manifest.texts.find("config");
  if (config == found.manifest.texts.end() || config->second.find("\nplugins:") == std::string::npos ||
      config->second.find("\nplugins: []") != std::string::npos)
    return found;
  TrainConfig settings;
  Config(settings).read_yaml(config->second, found.path);
  try {
    nn::load_plugins(settings.plugins);
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "the run in {} was trained with a plugin: {}; say --plugin when it is another file now", found.path,
                  failure.what());
  }
  return found;
}

// Of a checkpoint without one, or with a loss of the program's own: what the data say.
std::string loss_text(const checkpoint::Manifest& m) {
  const auto at = m.texts.find(kLossText);
  return at == m.texts.end() ? "auto" : at->second;
}

}  // namespace

Predictor::Predictor(const std::string& path, const std::vector<std::string>& plugins)
    : found_(with_plugins(find_checkpoint(path), plugins)),
      spec_(text_of(found_.manifest, "model")),
      form_(form_of(found_.manifest, found_.path)),
      loss_(loss_text(found_.manifest), form_.targets > 0),
      transforms_(transforms_of(found_.manifest, form_)),
      model_(nn::make_model(spec_, 0)) {
  load_model(model_, found_);
  model_.train(false);
}

std::vector<Guess> Predictor::guesses_of(const at::Tensor& logits, int top) const {
  const at::Tensor shares = torch::softmax(logits.to(torch::kDouble), 0);
  const auto [best, which] = shares.topk(std::min<std::int64_t>(top, shares.size(0)));
  std::vector<Guess> guesses;
  for (std::int64_t i = 0; i < best.size(0); ++i) {
    const auto label = which[i].item<std::int64_t>();
    guesses.push_back({label, class_name(label), best[i].item<double>()});
  }
  return guesses;
}

std::vector<Guess> Predictor::classify(const std::string& picture, int top) const {
  if (form_.input != data::Input::pixels)
    throw_failure(Kind::usage, "model '{}' reads {}, not pictures: {}", spec_, data::name_of(form_.input), picture);
  const data::Image image = data::decode_image(read_file(picture, kMostPictureBytes), form_.shape[0], picture);
  const auto set = single(form_, picture, data::resize_planar(image, form_.shape[1], form_.shape[2]));
  const torch::NoGradGuard no_grad;
  at::Tensor inputs, labels;
  const std::int64_t first = 0;
  nn::fetch(set, transforms_, std::span(&first, 1), inputs, labels);
  return guesses_of(model_.forward(inputs)[0], top);
}

void Predictor::check_form(const data::Form& form, const std::string& source) const {
  if (form.shape != form_.shape || form.input != form_.input)
    throw_failure(Kind::usage, "'{}' has samples of {} {}, the model was trained on {} {}", source, data::name_of(form.input),
                  fmt::join(form.shape, "x"), data::name_of(form_.input), fmt::join(form_.shape, "x"));
  if (form.targets != form_.targets)
    throw_failure(Kind::usage, "'{}' has {} float targets for each sample, the model was trained on {}", source, form.targets,
                  form_.targets);
  const std::string difference = data::difference_of_classes({form_.names, found_.path}, {form.names, fmt::format("'{}'", source)});
  if (!difference.empty())
    throw_failure(Kind::usage, "{}: its samples would count for another class; give a set with the classes that were trained on",
                  difference);
}

Score Predictor::score(const std::string& dataset_spec, std::int64_t limit) const {
  const auto set = data::open_dataset(dataset_spec, form_);
  check_form(set->form(), dataset_spec);
  return predict(*set, {.limit = limit}, nullptr);
}

Score Predictor::predict(const data::Dataset& set, const PredictOptions& options,
                         const std::function<void(const Prediction&)>& take) const {
  const torch::NoGradGuard no_grad;
  Score score{.measure = std::string(loss_.measure())};
  const std::int64_t all = options.limit > 0 ? std::min(options.limit, set.size()) : set.size();
  double measured = 0;
  at::Tensor inputs, labels;
  for (std::int64_t first = 0; first < all; first += kBatch) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kBatch, all - first)));
    std::iota(indices.begin(), indices.end(), first);
    nn::fetch(set, transforms_, indices, inputs, labels);
    const at::Tensor outputs = model_.forward(inputs);
    if (!set.form().unlabelled) {
      const nn::Loss loss = loss_(outputs, labels);
      score.loss += loss.value.item<double>();
      measured += loss_.measure_sum(outputs, labels);
      score.samples += loss.count;
    }
    for (std::int64_t i = 0; take && i < outputs.size(0); ++i)
      take(prediction_of(set, first + i, outputs[i], set.form().unlabelled ? at::Tensor() : labels[i], options.top));
  }
  const auto count = static_cast<double>(std::max<std::int64_t>(1, score.samples));
  score.loss /= count;
  if (!score.regression()) score.correct = static_cast<std::int64_t>(measured);
  if (score.regression()) score.error = score.measure == "rmse" ? std::sqrt(measured / count) : measured / count;
  return score;
}

}  // namespace cohort::train
