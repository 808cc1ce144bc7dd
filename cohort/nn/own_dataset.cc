#include "cohort/nn/own_dataset.h"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {
namespace {

std::string text_of(const at::Tensor& t) {
  if (!t.defined()) return "an undefined tensor";
  return fmt::format("[{}] {}", fmt::join(t.sizes(), ", "), c10::toString(t.scalar_type()));
}

bool whole(const at::Tensor& t) { return c10::isIntegralType(t.scalar_type(), true); }

data::Form form_of(const OwnSample& first, const OwnDatasetOptions& options) {
  const auto& [input, label] = first;
  if (!input.defined() || !label.defined() || input.numel() == 0 || label.numel() == 0)
    throw_failure(Kind::usage, "{}: sample 0 is {} with a label {}: both must hold something", options.name, text_of(input),
                  text_of(label));
  data::Form form{.shape = input.sizes().vec(), .classes = options.classes, .names = options.names};
  if (input.is_floating_point()) {
    form.input = data::Input::floats;
    if (form.shape.empty()) form.shape = {1};
  } else if (input.scalar_type() == at::kByte && input.dim() == 3) {
    form.input = data::Input::pixels;
  } else if (whole(input) && input.scalar_type() != at::kByte && input.dim() == 1 && options.vocabulary > 0) {
    form.input = data::Input::tokens;
    form.wide = true;
    form.vocabulary = options.vocabulary;
  } else {
    throw_failure(Kind::usage,
                  "{}: sample 0 is {}: it must be uint8 [channels, height, width], floating point, or int64 [tokens] with a `vocabulary`",
                  options.name, text_of(input));
  }
  if (label.is_floating_point())
    form.targets = label.numel(), form.classes = 0;
  else if (label.dim() > 0 && label.numel() > 1)
    form.ids = label.numel();
  form.next_tokens = form.wide && form.ids == form.shape[0];
  return form;
}

}  // namespace

at::Tensor label_tensor(std::int64_t label) { return at::scalar_tensor(label, at::TensorOptions().dtype(at::kLong)); }
at::Tensor label_tensor(double label) { return at::scalar_tensor(label, at::TensorOptions().dtype(at::kFloat)); }

namespace {

class OwnDataset final : public data::Dataset {
 public:
  using Get = std::function<OwnSample(std::int64_t)>;

  OwnDataset(Get get, std::int64_t size, OwnDatasetOptions options, const OwnSample& first)
      : Dataset(form_of(first, options), size),
        get_(std::move(get)),
        options_(std::move(options)),
        input_(first.input.sizes().vec()),
        label_(first.label.sizes().vec()),
        input_floats_(first.input.is_floating_point()),
        label_floats_(first.label.is_floating_point()) {}

  data::Sample sample(std::int64_t index, data::Scratch& scratch) const override {
    const OwnSample got = checked(index);
    const auto input_type = form().input == data::Input::floats ? at::kFloat : form().wide ? at::kLong : at::kByte;
    const at::Tensor input = got.input.to(at::kCPU, input_type).contiguous();
    const at::Tensor label = got.label.to(at::kCPU, label_floats_ ? at::kFloat : at::kLong).contiguous();
    const auto bytes = static_cast<std::size_t>(form().bytes()), label_at = (bytes + 7) / 8 * 8, label_bytes = label.nbytes();
    scratch.resize(label_at + label_bytes);
    std::memcpy(scratch.data(), input.const_data_ptr(), bytes);
    std::memcpy(scratch.data() + label_at, label.const_data_ptr(), label_bytes);
    data::Sample sample{.input = scratch.data()};
    if (label_floats_) {
      sample.values = reinterpret_cast<const float*>(scratch.data() + label_at);
      return sample;
    }
    sample.ids = reinterpret_cast<const std::int64_t*>(scratch.data() + label_at);
    check_labels({sample.ids, static_cast<std::size_t>(label.numel())}, form().next_tokens ? form().vocabulary : form().classes);
    if (form().wide) check_tokens({reinterpret_cast<const std::int64_t*>(scratch.data()), bytes / 8}, form().vocabulary);
    sample.label = *sample.ids;
    return sample;
  }

  std::string where(std::int64_t index) const override { return fmt::format("{}, sample {}", options_.name, index); }

 private:
  OwnSample checked(std::int64_t index) const {
    OwnSample got;
    try {
      got = get_(index);
    } catch (const Failure&) {
      throw;
    } catch (const std::exception& error) {
      const std::string all = error.what();
      throw_failure(Kind::corrupt, "get({}) failed: {}", index, all.substr(0, all.find('\n')));
    }
    check_like_first("input", got.input, input_, input_floats_);
    check_like_first("label", got.label, label_, label_floats_);
    return got;
  }

  static void check_like_first(const char* what, const at::Tensor& t, const std::vector<std::int64_t>& sizes, bool floats) {
    if (t.defined() && t.sizes() == at::IntArrayRef(sizes) && t.is_floating_point() == floats) return;
    throw_failure(Kind::corrupt, "its {} is {}, that of sample 0 is [{}] of {}; all samples of a set are alike", what, text_of(t),
                  fmt::join(sizes, ", "), floats ? "floating point" : "whole numbers");
  }

  static void check_tokens(std::span<const std::int64_t> tokens, std::int64_t vocabulary) {
    for (const std::int64_t token : tokens)
      if (token < 0 || token >= vocabulary)
        throw_failure(Kind::corrupt, "it has token {}, expected 0 to {}: the `vocabulary` is {}", token, vocabulary - 1, vocabulary);
  }

  static void check_labels(std::span<const std::int64_t> labels, std::int64_t classes) {
    for (const std::int64_t label : labels)
      if ((label < 0 && label != kIgnoredLabel) || (classes > 0 && label >= classes))
        throw_failure(Kind::corrupt, "it has label {}, expected 0 to {}, or {} for one that counts for nothing", label,
                      classes > 0 ? fmt::to_string(classes - 1) : "the number of classes less one", kIgnoredLabel);
  }

  const Get get_;
  const OwnDatasetOptions options_;
  const std::vector<std::int64_t> input_, label_;
  const bool input_floats_, label_floats_;
};

}  // namespace

std::shared_ptr<const data::Dataset> dataset_of(std::function<OwnSample(std::int64_t)> get, std::int64_t size, OwnDatasetOptions options) {
  if (size < 1) throw_failure(Kind::usage, "{}: a data set without a single sample", options.name);
  const OwnSample first = get(0);
  return std::make_shared<OwnDataset>(std::move(get), size, std::move(options), first);
}

}  // namespace cohort::nn
