#include "cohort/python/train/python_objective.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/python_variable.h>

#include "cohort/base/error.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// Of a batch: what a function said, as the sum over its samples. A mean weighs as many as `count`.
at::Tensor summed(const std::string& what, const at::Tensor& value, std::int64_t samples, std::int64_t count) {
  if (value.numel() == 1 && (value.dim() == 0 || samples != 1)) return value.reshape({}).mul(static_cast<double>(count));
  if (value.dim() == 1 && value.size(0) == samples) return value.sum().mul(static_cast<double>(count) / static_cast<double>(samples));
  throw_failure(Kind::usage, "{} gave a tensor of [{}] for {} samples: give one number, the mean, or one for each sample", what,
                fmt::join(value.sizes(), ", "), samples);
}

at::Tensor call(const PythonObject& function, const std::string& what, const at::Tensor& outputs, const at::Tensor& labels) {
  const py::object result = handle_of(function)(outputs, labels);
  if (THPVariable_Check(result.ptr())) return THPVariable_Unpack(result.ptr());
  if (PyNumber_Check(result.ptr()) == 0)
    throw_failure(Kind::usage, "{} gave a {}: give a number or a tensor", what, Py_TYPE(result.ptr())->tp_name);
  return py::cast<at::Tensor>(py::module_::import("torch").attr("as_tensor")(result));
}

nn::LossFunction loss_of(PythonObject function, const PythonDataset& set, ExceptionSlot& slot) {
  return [function = std::move(function), &set, &slot](const at::Tensor& outputs, const at::Tensor& labels) -> nn::Loss {
    const std::int64_t samples = labels.size(0);
    if (samples == 0) return {outputs.sum().mul(0), 0};  // the mean of nothing would be NaN
    const at::Tensor value = slot.call("the loss", [&] { return call(function, "the loss", outputs, set.in_shape(labels)); });
    return {summed("the loss", value, samples, samples), samples};
  };
}

// What the loss counts in a batch: evaluation divides by it.
std::int64_t counted(const at::Tensor& labels, bool own_loss) {
  if (own_loss) return labels.size(0);
  return labels.is_floating_point() ? labels.numel() : labels.ne(nn::kIgnoredLabel).sum().item<std::int64_t>();
}

nn::Metric metric_of(const std::string& name, PythonObject function, const PythonDataset& set, bool own_loss, ExceptionSlot& slot) {
  const std::string what = fmt::format("metric '{}'", name);
  const auto sum = [=, &set, &slot, function = std::move(function)](const at::Tensor& outputs, const at::Tensor& labels) -> double {
    if (labels.size(0) == 0) return 0;
    const at::Tensor as_labels = own_loss ? outputs : set.outputs_in_shape(outputs);
    const at::Tensor value = slot.call(what, [&] { return call(function, what, as_labels, set.in_shape(labels)); });
    return summed(what, value.to(at::kDouble), labels.size(0), counted(labels, own_loss)).item<double>();
  };
  return {.name = name, .sum = sum};
}

}  // namespace

nn::Objective objective_of(const PythonObjective& of, const PythonDataset& set, ExceptionSlot& slot) {
  nn::Objective objective;
  if (of.loss) objective.loss = loss_of(of.loss, set, slot);
  for (const auto& [name, function] : of.metrics) objective.metrics.push_back(metric_of(name, function, set, of.loss != nullptr, slot));
  return objective;
}

}  // namespace cohort::python
