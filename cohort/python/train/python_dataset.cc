#include "cohort/python/train/python_dataset.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "cohort/base/bytes.h"
#include "cohort/base/error.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::size_t kImageSizes = 3;      // channels, height, width
constexpr std::size_t kMostFloatSizes = 4;  // of data::Input::floats

at::Tensor as_tensor(const py::handle& value, std::string_view part) {
  if (THPVariable_Check(value.ptr())) return THPVariable_Unpack(value.ptr()).detach();
  try {
    return py::cast<at::Tensor>(py::module_::import("torch").attr("as_tensor")(value));
  } catch (const py::error_already_set&) {
    throw_failure(Kind::usage, "its {} is a {}: give a tensor, a numpy array or a number", part, Py_TYPE(value.ptr())->tp_name);
  }
}

struct Item {
  py::object input, label;
};

Item item_of(const PythonObject& set, std::int64_t index) {
  const py::object item = py::reinterpret_steal<py::object>(PyObject_GetItem(set.get(), py::int_(index).ptr()));
  if (!item) throw py::error_already_set();
  if (!(py::isinstance<py::tuple>(item) || py::isinstance<py::list>(item)) || py::len(item) != 2)
    throw_failure(Kind::usage, "it is a {}: a data set gives pairs (input, label)", Py_TYPE(item.ptr())->tp_name);
  const auto pair = py::reinterpret_borrow<py::sequence>(item);
  return {pair[0], pair[1]};
}

bool is_integer(const at::Tensor& t) { return at::isIntegralType(t.scalar_type(), true); }
Sizes sizes_of(const at::Tensor& t) { return t.sizes().vec(); }

std::string kind_text(at::ScalarType type, const Sizes& sizes) {
  return fmt::format("[{}] {}", fmt::join(sizes, ", "), type == at::kByte ? "uint8" : type == at::kLong ? "integers" : "floats");
}

data::Form form_of(const at::Tensor& input) {
  data::Form form{.shape = sizes_of(input)};
  if (input.numel() == 0 || input.dim() == 0)
    throw_failure(Kind::usage, "its input is of size [{}]: one value at least, and one dimension", fmt::join(form.shape, ", "));
  if (input.scalar_type() == at::kByte) {
    if (form.shape.size() != kImageSizes)
      throw_failure(Kind::usage, "its input is uint8 of size [{}]: uint8 is for images of [channels, height, width]; convert it to float",
                    fmt::join(form.shape, ", "));
    return form;
  }
  if (input.scalar_type() != at::kBool && is_integer(input)) {
    form.input = data::Input::tokens;
    form.vocabulary = 1;  // not known: the model says
    form.wide = true;
    return form;
  }
  if (input.is_complex() || form.shape.size() > kMostFloatSizes)
    throw_failure(Kind::usage, "its input is {} of {} dimensions: floats of 1 to {} dimensions are needed",
                  c10::toString(input.scalar_type()), form.shape.size(), kMostFloatSizes);
  form.input = data::Input::floats;
  return form;
}

PythonDataset::First look_at_first(const PythonObject& set) {
  PythonDataset::First first;
  first.size = static_cast<std::int64_t>(PyObject_Size(set.get()));
  if (first.size < 0) throw py::error_already_set();
  if (first.size == 0) return first;
  try {
    const Item item = item_of(set, 0);
    first.form = form_of(as_tensor(item.input, "input"));
    const at::Tensor label = as_tensor(item.label, "label");
    first.label_sizes = sizes_of(label);
    if (label.numel() == 0) throw_failure(Kind::usage, "its label is empty");
    (is_integer(label) ? first.form.ids : first.form.targets) = label.numel();
  } catch (const Failure& failure) {
    throw_failure(Kind::usage, "sample 0: {}", failure.what());
  }
  return first;
}

at::ScalarType input_type(const data::Form& form) {
  return form.input == data::Input::pixels ? at::kByte : form.input == data::Input::tokens ? at::kLong : at::kFloat;
}

}  // namespace

PythonDataset::PythonDataset(First first, PythonObject set, std::string name, ExceptionSlot& slot)
    : data::Dataset(std::move(first.form), first.size),
      set_(std::move(set)),
      name_(std::move(name)),
      label_sizes_(std::move(first.label_sizes)),
      slot_(slot) {}

std::string PythonDataset::where(std::int64_t index) const { return fmt::format("item {} of {}", index, name_); }

// Of that type and those sizes, contiguous, on the CPU.
at::Tensor PythonDataset::checked(const py::handle& value, std::string_view part, at::ScalarType type, const Sizes& sizes) const {
  const at::Tensor t = as_tensor(value, part);
  const bool same_kind = type == at::kByte   ? t.scalar_type() == at::kByte
                         : type == at::kLong ? is_integer(t)
                                             : !t.is_complex() && (!is_integer(t) || t.scalar_type() == at::kBool);
  if (!same_kind || t.sizes() != at::IntArrayRef(sizes))
    throw_failure(Kind::usage, "its {} is [{}] {}, and sample 0 has {}: all samples are of one size and kind", part,
                  fmt::join(t.sizes(), ", "), c10::toString(t.scalar_type()), kind_text(type, sizes));
  return t.to(at::TensorOptions().dtype(type).device(at::kCPU)).contiguous();
}

data::Sample PythonDataset::sample(std::int64_t index, data::Scratch& scratch) const {
  return slot_.call(where(index), [&] {
    const Item item = item_of(set_, index);
    const at::Tensor input = checked(item.input, "input", input_type(form()), form().shape);
    const at::Tensor label = checked(item.label, "label", form().targets > 0 ? at::kFloat : at::kLong, label_sizes_);
    const std::size_t at = round_up(input.nbytes(), sizeof(std::int64_t));
    scratch.resize(at + label.nbytes());
    std::memcpy(scratch.data(), input.const_data_ptr(), input.nbytes());
    std::memcpy(scratch.data() + at, label.const_data_ptr(), label.nbytes());
    data::Sample sample{.input = scratch.data()};
    if (form().targets > 0)
      sample.values = reinterpret_cast<const float*>(scratch.data() + at);
    else
      sample.ids = reinterpret_cast<const std::int64_t*>(scratch.data() + at);
    return sample;
  });
}

at::Tensor PythonDataset::in_shape(const at::Tensor& labels) const {
  Sizes sizes{labels.size(0)};
  sizes.insert(sizes.end(), label_sizes_.begin(), label_sizes_.end());
  return labels.reshape(sizes);
}

at::Tensor PythonDataset::as_rows(const at::Tensor& outputs) const {
  if (outputs.dim() == 0) return outputs;
  const std::int64_t samples = outputs.size(0);
  if (form().targets > 0 && outputs.numel() == samples * form().targets) return outputs.reshape({samples, form().targets});
  const bool fits = form().ids > 0 && outputs.dim() == static_cast<std::int64_t>(label_sizes_.size()) + 2;
  return fits ? outputs.reshape({samples, form().ids, outputs.size(-1)}) : outputs;
}

at::Tensor PythonDataset::outputs_in_shape(const at::Tensor& rows) const {
  if (form().targets > 0) return in_shape(rows);
  Sizes sizes{rows.size(0)};
  sizes.insert(sizes.end(), label_sizes_.begin(), label_sizes_.end());
  sizes.push_back(rows.size(-1));
  return rows.reshape(sizes);
}

std::shared_ptr<const PythonDataset> dataset_of(const PythonObject& set, std::string name, ExceptionSlot& slot) {
  PythonDataset::First first = slot.call(name, [&] {
    try {
      return look_at_first(set);
    } catch (const Failure& failure) {
      throw_failure(Kind::usage, "{}, {}", name, failure.what());
    }
  });
  if (first.size == 0) throw_failure(Kind::usage, "{} has no sample", name);
  return std::make_shared<PythonDataset>(std::move(first), set, std::move(name), slot);
}

}  // namespace cohort::python
