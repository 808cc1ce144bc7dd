#include "cohort/train/loop/predictor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cohort/base/file.h"
#include "cohort/base/log.h"
#include "cohort/data/class_names.h"
#include "cohort/data/image.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/loss.h"
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
  if (fs::exists(one / checkpoint::kManifestName)) return checkpoint::Store(beside).verify(one.string());
  const fs::path folder = fs::is_directory(one / "checkpoints") ? one / "checkpoints" : one;
  if (!fs::is_directory(folder)) throw_failure(Kind::usage, "{} is neither the folder of a run nor of a checkpoint", path);
  const auto newest = fs::is_empty(folder) ? checkpoint::Newest{} : checkpoint::Store(folder.string()).newest();
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

data::Form form_of(const checkpoint::Manifest& m) {
  const auto at = m.values.find("data");
  if (at == m.values.end())
    throw_failure(Kind::usage, "the checkpoint's manifest does not describe its data: it was not written by cohort train");
  const auto json = nlohmann::json::parse(at->second);
  data::Form form{.shape = json.at("shape").get<std::vector<std::int64_t>>(), .classes = json.at("classes").get<std::int64_t>()};
  form.names = json.at("names").get<std::vector<std::string>>();
  form.vocabulary = json.at("tokens").get<std::int64_t>();
  if (form.vocabulary > 0) form.input = data::Input::tokens;
  return form;
}

// One picture as a data set: what is read from a file goes through the same code as what was trained on.
data::MemoryDataset single(const data::Form& form, const std::string& source, std::vector<std::uint8_t> pixels) {
  return {form, source, std::move(pixels), {0}};
}

data::Transforms transforms_of(const checkpoint::Manifest& m, const data::Form& form) {
  if (form.input == data::Input::tokens) return {};
  const auto blank = single(form, "a blank picture", std::vector<std::uint8_t>(static_cast<std::size_t>(form.elements())));
  return data::Transforms::parse(text_of(m, "transforms"), blank).for_evaluation();  // nothing is left to measure
}

}  // namespace

Predictor::Predictor(const std::string& path)
    : found_(find_checkpoint(path)),
      spec_(text_of(found_.manifest, "model")),
      form_(form_of(found_.manifest)),
      transforms_(transforms_of(found_.manifest, form_)),
      model_(nn::make_model(spec_, 0)) {
  load_model(model_, found_);
  model_.train(false);
}

std::vector<Guess> Predictor::classify(const std::string& picture, int top) const {
  if (form_.input == data::Input::tokens) throw_failure(Kind::usage, "model '{}' reads tokens, not pictures", spec_);
  const data::Image image = data::decode_image(read_file(picture, kMostPictureBytes), form_.shape[0], picture);
  const auto set = single(form_, picture, data::resize_planar(image, form_.shape[1], form_.shape[2]));
  const torch::NoGradGuard no_grad;
  at::Tensor inputs, labels;
  const std::int64_t first = 0;
  nn::fetch(set, transforms_, std::span(&first, 1), inputs, labels);
  const at::Tensor shares = torch::softmax(model_.forward(inputs)[0].to(torch::kDouble), 0);
  const auto [best, which] = shares.topk(std::min<std::int64_t>(top, shares.size(0)));
  std::vector<Guess> guesses;
  for (std::int64_t i = 0; i < best.size(0); ++i) {
    const auto label = which[i].item<std::int64_t>();
    const bool named = label < static_cast<std::int64_t>(form_.names.size());
    guesses.push_back({label, named ? form_.names[static_cast<std::size_t>(label)] : fmt::format("{}", label), best[i].item<double>()});
  }
  return guesses;
}

Score Predictor::score(const std::string& dataset_spec, std::int64_t limit) const {
  const auto set = data::open_dataset(dataset_spec);
  if (set->form().shape != form_.shape || set->form().input != form_.input)
    throw_failure(Kind::usage, "'{}' has samples of {}, the model was trained on {}", dataset_spec, fmt::join(set->form().shape, "x"),
                  fmt::join(form_.shape, "x"));
  const std::string difference =
      data::difference_of_classes({form_.names, found_.path}, {set->form().names, fmt::format("'{}'", dataset_spec)});
  if (!difference.empty())
    throw_failure(Kind::usage, "{}: its samples would count for another class; give a set with the classes that were trained on",
                  difference);
  const torch::NoGradGuard no_grad;
  Score score;
  const std::int64_t all = limit > 0 ? std::min(limit, set->size()) : set->size();
  at::Tensor inputs, labels;
  for (std::int64_t first = 0; first < all; first += kBatch) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kBatch, all - first)));
    std::iota(indices.begin(), indices.end(), first);
    nn::fetch(*set, transforms_, indices, inputs, labels);
    const at::Tensor logits = model_.forward(inputs);
    const nn::Loss loss = nn::loss_of(logits, labels);
    score.loss += loss.value.item<double>();
    score.correct += nn::correct(logits, labels);
    score.samples += loss.count;
  }
  score.loss /= static_cast<double>(std::max<std::int64_t>(1, score.samples));
  return score;
}

}  // namespace cohort::train
