#include "cohort/nn/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DefaultDtype.h>

#include <vector>

namespace cohort::nn {
namespace {

std::vector<std::int64_t> input_sizes(const data::Form& form, std::int64_t count) {
  std::vector<std::int64_t> sizes{count};
  sizes.insert(sizes.end(), form.shape.begin(), form.shape.end());
  return sizes;
}

std::vector<std::int64_t> label_sizes(const data::Form& form, std::int64_t count) {
  if (form.targets > 0) return {count, form.targets};
  if (form.ids > 0) return {count, form.ids};
  return form.next_tokens ? std::vector<std::int64_t>{count, form.elements()} : std::vector<std::int64_t>{count};
}

at::ScalarType input_type(const data::Form& form) { return form.input == data::Input::tokens ? at::kLong : at::kFloat; }
at::ScalarType label_type(const data::Form& form) { return form.targets > 0 ? at::kFloat : at::kLong; }

void fit(at::Tensor& tensor, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  if (tensor.defined() && tensor.sizes() == at::IntArrayRef(sizes) && tensor.scalar_type() == type && tensor.is_contiguous() &&
      tensor.device().is_cpu())
    return;
  tensor = at::empty(sizes, at::TensorOptions().dtype(type));
}

}  // namespace

Tensors tensors(const data::Batch& batch) {
  const data::Form& form = *batch.form;
  const auto hold = [memory = batch.memory](void*) {};  // the deleter: the memory goes back with the last tensor
  const auto view = [&](void* at, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
    at::Tensor tensor = at::from_blob(at, sizes, hold, at::TensorOptions().dtype(type));
    if (type == at::kFloat && c10::get_default_dtype_as_scalartype() == at::kDouble) return tensor.to(at::kDouble);  // a copy
    return tensor;
  };
  return {view(batch.memory->inputs(), input_sizes(form, batch.count), input_type(form)),
          view(batch.memory->labels(), label_sizes(form, batch.count), label_type(form))};
}

void fetch(const data::Dataset& set, const data::Transforms& transforms, std::span<const std::int64_t> indices, at::Tensor& inputs,
           at::Tensor& labels) {
  const auto count = static_cast<std::int64_t>(indices.size());
  fit(inputs, input_sizes(set.form(), count), input_type(set.form()));
  fit(labels, label_sizes(set.form(), count), label_type(set.form()));
  const data::Transforms evaluation = transforms.for_evaluation();
  data::TransformScratch transform_scratch;
  data::collate({set, evaluation}, indices, {inputs.data_ptr(), labels.data_ptr()}, transform_scratch);
}

}  // namespace cohort::nn
