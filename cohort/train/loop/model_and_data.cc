#include "cohort/train/loop/model_and_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "cohort/base/error.h"
#include "cohort/base/text.h"
#include "cohort/data/class_names.h"
#include "cohort/nn/autocast.h"
#include "cohort/nn/zoo.h"
#include "cohort/sync/strategy.h"

namespace cohort::train {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

at::Tensor try_forward(nn::Model& model, const data::Form& form, const std::string& spec) {
  std::vector<std::int64_t> sizes{1};
  sizes.insert(sizes.end(), form.shape.begin(), form.shape.end());
  const torch::NoGradGuard no_grad;
  model.train(false);
  try {
    return model.forward(torch::zeros(sizes, form.input == data::Input::tokens ? torch::kLong : c10::get_default_dtype_as_scalartype()));
  } catch (const c10::Error& error) {
    const std::string all = error.what_without_backtrace();
    throw_failure(Kind::usage, "model '{}' takes samples of {}, the data set has {}: {}", spec, shape_text(model.input().sizes),
                  shape_text(form.shape), all.substr(0, all.find('\n')));
  }
}

void check_test_set(const TrainConfig& config, const data::Form& train, const data::Form& test) {
  const std::string trained_on = fmt::format("data.train '{}'", config.data.train),
                    tested_on = fmt::format("data.test '{}'", config.data.test);
  const std::string difference = data::difference_of_classes({train.names, trained_on}, {test.names, tested_on});
  if (!difference.empty())
    throw_failure(Kind::usage, "{}: its samples would count for another class; give both sets the same classes", difference);
  if (train.shape != test.shape || train.input != test.input || test.classes > train.classes)
    throw_failure(Kind::usage, "data.test has samples of {} in {} classes, data.train of {} in {}: say data.test for another set or ''",
                  shape_text(test.shape), test.classes, shape_text(train.shape), train.classes);
}

}  // namespace

void check_fit(nn::Model& model, const data::Form& form, const std::string& spec) {
  const bool tokens = form.input == data::Input::tokens;
  if (tokens != model.input().tokens())
    throw_failure(Kind::usage, "model '{}' reads {}, the data set has {}", spec, model.input().tokens() ? "tokens" : "images",
                  tokens ? "tokens" : "images");
  if (tokens && model.input().vocabulary < form.vocabulary)
    throw_failure(Kind::usage, "model '{}' has a vocabulary of {} tokens, the data set has {}", spec, model.input().vocabulary,
                  form.vocabulary);
  const at::Tensor logits = try_forward(model, form, spec);
  const auto needed = form.next_tokens ? form.vocabulary : form.classes;
  if (logits.size(-1) < needed) throw_failure(Kind::usage, "model '{}' has {} classes, the data set has {}", spec, logits.size(-1), needed);
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
  return {.samples = samples,
          .ranks = ranks,
          .rank = rank,
          .batch = static_cast<std::int64_t>(config.data.batch) * config.data.accumulate,
          .seed = static_cast<std::uint64_t>(config.seed),
          .drop_last = config.data.drop_last,
          .sampler = config.data.sampler};
}

ModelAndData load_model_and_data(const TrainConfig& config) {
  ModelAndData m{.model = nn::make_model(config.model, static_cast<std::uint64_t>(config.seed)),
                 .train = data::open_dataset(config.data.train),
                 .test = nullptr,
                 .transforms = {}};
  check_fit(m.model, m.train->form(), config.model);
  if (config.precision != Precision::fp32 && config.device == "cpu") check_precision(m.model, config.precision, config.model);
  if (!config.data.test.empty()) {
    m.test = data::open_dataset(config.data.test);
    check_test_set(config, m.train->form(), m.test->form());
  }
  if (m.train->form().input == data::Input::pixels) m.transforms = data::Transforms::parse(config.data.transforms, *m.train);
  sync::make(config.sync);  // throws for one that is not there
  return m;
}

}  // namespace cohort::train
