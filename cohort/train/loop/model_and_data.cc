#include "cohort/train/loop/model_and_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/text.h"
#include "cohort/data/class_names.h"
#include "cohort/data/limits.h"
#include "cohort/group/device_mesh.h"
#include "cohort/nn/autocast.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/plugin.h"
#include "cohort/nn/zoo.h"
#include "cohort/sync/strategy.h"
#include "cohort/train/loop/pretrained.h"

namespace cohort::train {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

}  // namespace

void refuse_misfit(const nn::Input& input, const data::Form& form, const std::string& spec, const std::string& reason) {
  const std::string instead = nn::contradiction(spec, form);
  const std::string why =
      instead.empty() ? reason.substr(0, reason.find('\n')) : fmt::format("say {}, or leave it out: it follows from the data", instead);
  throw_failure(Kind::usage, "model '{}' takes samples of {}, the data set has {}: {}", spec, shape_text(input.sizes),
                shape_text(form.shape), why);
}

namespace {

at::Tensor try_forward(nn::Model& model, const data::Form& form, const std::string& spec) {
  std::vector<std::int64_t> sizes{1};
  sizes.insert(sizes.end(), form.shape.begin(), form.shape.end());
  const torch::NoGradGuard no_grad;
  model.train(false);
  try {
    return model.forward(torch::zeros(sizes, form.input == data::Input::tokens ? torch::kLong : c10::get_default_dtype_as_scalartype()));
  } catch (const c10::Error& error) {
    refuse_misfit(model.input(), form, spec, error.what_without_backtrace());
  }
}

void check_test_set(const TrainConfig& config, const data::Form& train, const data::Form& test) {
  const std::string trained_on = fmt::format("data.train '{}'", config.data.train),
                    tested_on = fmt::format("data.test '{}'", config.data.test);
  const std::string difference = data::difference_of_classes({train.names, trained_on}, {test.names, tested_on});
  if (!difference.empty())
    throw_failure(Kind::usage, "{}: its samples would count for another class; give both sets the same classes{}", difference,
                  config.data.test == TrainConfig{}.data.test ? " (data.test is the default here: `data.test=` is none)" : "");
  if (train.unlabelled || test.unlabelled)
    throw_failure(Kind::usage, "{} has no column with its labels: say label= or target=; `cohort predict` takes such files",
                  train.unlabelled ? trained_on : tested_on);
  if (train.targets != test.targets)
    throw_failure(Kind::usage, "data.test has {} float targets for each sample, data.train {}: give both sets the same targets",
                  test.targets, train.targets);
  if (train.shape != test.shape || train.input != test.input || test.classes > train.classes)
    throw_failure(Kind::usage, "data.test has samples of {} in {} classes, data.train of {} in {}: say data.test for another set or ''",
                  shape_text(test.shape), test.classes, shape_text(train.shape), train.classes);
}

void check_outputs(const at::Tensor& outputs, const data::Form& form, const std::string& spec) {
  if (outputs.dim() == 2 && outputs.size(1) == form.targets) return;
  throw_failure(Kind::usage, "model '{}' has {} outputs for a sample, the data set has {} float targets", spec,
                outputs.dim() == 2 ? outputs.size(1) : outputs.numel(), form.targets);
}

// Logits [1, ids, classes]: one row of them for each of a sample's integer labels.
void check_ids(const at::Tensor& logits, const data::Form& form, const std::string& spec) {
  if (logits.dim() == 3 && logits.size(1) == form.ids) return;
  throw_failure(Kind::usage,
                "model '{}' gives [{}] for one sample, the data set has integer labels, {} for each: cross entropy wants the labels' size "
                "and then the classes; else say a loss of your own",
                spec, fmt::join(logits.sizes(), ", "), form.ids);
}

nn::Input input_of(const data::Form& form) { return {.sizes = form.shape, .vocabulary = form.vocabulary}; }

std::string tensor_text(const at::Tensor& t) { return fmt::format("[{}] {}", fmt::join(t.sizes(), ", "), c10::toString(t.scalar_type())); }

// Forward and the loss of one's own, on the first sample. Returns what the loss counts for it.
double try_objective(nn::Model& model, const ModelAndData& m) {
  at::Tensor inputs, labels;
  const std::int64_t first = 0;
  nn::fetch(*m.train, m.transforms, std::span(&first, 1), inputs, labels);
  const torch::NoGradGuard no_grad;
  const bool was_training = model.training();
  model.train(false);
  const at::Tensor outputs = model.forward(inputs).to(torch::kFloat);
  model.train(was_training);
  nn::Loss loss;
  try {
    loss = m.objective.loss(outputs, labels);
    m.objective.evaluation_loss(outputs, labels);
    for (const auto& metric : m.objective.metrics) metric.sum(outputs, labels);
  } catch (const c10::Error& error) {
    const std::string all = error.what_without_backtrace();
    throw_failure(Kind::usage, "the loss or a metric does not take what model '{}' gives for a sample, {}, with its labels, {}: {}", m.name,
                  tensor_text(outputs), tensor_text(labels), all.substr(0, all.find('\n')));
  }
  if (!loss.value.defined() || loss.value.numel() != 1)
    throw_failure(Kind::usage, "the loss of a sample is {}: it must be one number, the sum over the samples, and what was counted",
                  loss.value.defined() ? tensor_text(loss.value) : "an undefined tensor");
  return static_cast<double>(loss.count);
}

}  // namespace

void prepare(ModelAndData& m, const TrainConfig& config) {
  if (!m.train) throw_failure(Kind::usage, "there is no training set");
  const data::Form& form = m.train->form();
  const bool own_loss = static_cast<bool>(m.objective.loss);
  if (own_loss && config.optim.label_smoothing > 0)
    throw_failure(Kind::usage, "optim.label_smoothing is of the cross entropy, and this run has a loss of its own: set it to 0");
  if (!own_loss && form.targets > 0 && config.optim.label_smoothing > 0)
    throw_failure(Kind::usage, "optim.label_smoothing={} is for classes, and data.train has float targets: set it to 0",
                  config.optim.label_smoothing);
  if (own_loss && config.loss != "auto")
    throw_failure(Kind::usage, "loss={}, and this run has a loss of its own: leave one of them out", config.loss);
  if (m.model.input().sizes.empty()) m.model.set_input(input_of(form));
  if (own_loss)
    try_forward(m.model, form, m.name);
  else
    check_fit(m.model, form, m.name);
  if (config.precision != Precision::fp32 && config.device == "cpu") check_precision(m.model, config.precision, m.name);
  if (m.test) check_test_set(config, form, m.test->form());
  if (form.input == data::Input::pixels && m.transforms.empty()) m.transforms = data::Transforms::parse(config.data.transforms, *m.train);
  m.objective = nn::complete(std::move(m.objective), form, config.loss, config.optim.label_smoothing);
  const double counted = own_loss ? try_objective(m.model, m) : 0;
  m.counts_each = counted > 0 ? counted : static_cast<double>(std::max<std::int64_t>(1, form.labels()));
}

void check_fit(nn::Model& model, const data::Form& form, const std::string& spec) {
  const bool tokens = form.input == data::Input::tokens;
  if (tokens != model.input().tokens())
    throw_failure(Kind::usage, "model '{}' reads {}, the data set has {}", spec, model.input().tokens() ? "tokens" : "images",
                  data::name_of(form.input));
  if (tokens && model.input().vocabulary < form.vocabulary)
    throw_failure(Kind::usage, "model '{}' has a vocabulary of {} tokens, the data set has {}", spec, model.input().vocabulary,
                  form.vocabulary);
  const at::Tensor logits = try_forward(model, form, spec);
  if (form.targets > 0) return check_outputs(logits, form, spec);
  const auto needed = form.next_tokens ? form.vocabulary : form.classes;
  if (logits.size(-1) < needed) throw_failure(Kind::usage, "model '{}' has {} classes, the data set has {}", spec, logits.size(-1), needed);
  if (form.ids > 0) return check_ids(logits, form, spec);
  if (logits.dim() != (form.next_tokens ? 3 : 2))
    throw_failure(Kind::usage, "model '{}' predicts one class for {}, the data set has one label for {}", spec,
                  logits.dim() == 3 ? "each token" : "a sample", form.next_tokens ? "each token" : "a sample");
}

void check_precision(nn::Model& model, Precision precision, const std::string& spec) {
  try {
    at::Tensor out;
    {
      const autocast half(precision);
      out = model.forward(model.example(2));
    }
    out.to(at::kFloat).sum().backward();
    model.zero_grad();
  } catch (const std::exception& error) {  // not all of torch's are c10::Error: oneDNN has others
    const std::string all = error.what();
    throw_failure(Kind::usage, "model '{}' cannot be trained in {} on the CPU: {} says '{}'; try precision={}", spec, name_of(precision),
                  "torch " TORCH_VERSION, all.substr(0, all.find('\n')), precision == Precision::fp16 ? "bf16" : "fp32");
  }
}

data::Share share_of(const TrainConfig& config, std::int64_t samples, int ranks, int rank) {
  const group::DeviceMesh mesh(ranks, config.mesh);
  return {.samples = samples,
          .ranks = mesh.size("dp"),
          .rank = mesh.coordinate(Rank{rank}, "dp"),
          .batch = static_cast<std::int64_t>(config.data.batch) * config.data.accumulate,
          .seed = static_cast<std::uint64_t>(config.seed),
          .drop_last = config.data.drop_last,
          .sampler = config.data.sampler};
}

void set_limits(const DataConfig& config) {
  data::set_input_limits({.max_pixels = config.max_pixels, .max_scans = config.max_scans, .max_inflate_ratio = config.max_inflate_ratio});
}

namespace {

// A run that goes on has in its checkpoint what became of them, so that the file may be gone.
std::string first_values(const TrainConfig& config) {
  std::error_code unknown;
  if (config.pretrained.empty() || config.checkpoint.resume == "never" || std::filesystem::exists(config.pretrained, unknown))
    return config.pretrained;
  const std::filesystem::path checkpoints = run_folder(config) + "/checkpoints";
  if (std::filesystem::is_empty(checkpoints, unknown) || unknown) return config.pretrained;
  log_warning("pretrained: there is no file {} any more; the run goes on from a checkpoint, which has what became of it",
              config.pretrained);
  return "";
}

}  // namespace

ModelAndData load_model_and_data(const TrainConfig& config) {
  nn::load_plugins(config.plugins);
  set_limits(config.data);
  const auto train = data::open_dataset(config.data.train);
  const nn::FittedSpec fitted = nn::fit_spec(config.model, train->form());
  const auto loaded = std::make_shared<std::string>();
  const auto make_model = [loaded, spec = fitted.spec, seed = static_cast<std::uint64_t>(config.seed), file = first_values(config)] {
    nn::Model model = nn::make_model(spec, seed);
    if (!file.empty()) *loaded = load_pretrained(model, file);
    return model;
  };
  ModelAndData m{.model = make_model(), .train = train, .make_model = make_model, .name = fitted.spec, .from_data = fitted.from_data};
  m.pretrained = *loaded;
  if (!config.data.test.empty()) m.test = data::open_dataset(config.data.test, train->form());
  prepare(m, config);
  if (m.train->form().input == data::Input::floats) m.transforms = data::Transforms::parse(config.data.transforms, *m.train);
  sync::make(config.sync);  // throws for one that is not there
  return m;
}

TrainConfig settings_for(TrainConfig config, const ModelAndData& m) {
  config.model = m.name;
  config.data.train = "own";
  config.data.test = m.test ? "own" : "";
  return config;
}

}  // namespace cohort::train
