// Codecs for python/cohort/codecs.py: the table, and gradients reduced by them.
#include <ATen/ops/empty.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "cohort/codec/codec_row.h"
#include "cohort/python/bind.h"
#include "cohort/python/codec/gradient_codec.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

using Codec = std::shared_ptr<GradientCodec>;
using Names = std::vector<std::string>;

at::Tensor tensor_of(const std::vector<float>& values) {
  at::Tensor all = at::empty({static_cast<std::int64_t>(values.size())}, at::kFloat);
  std::copy(values.begin(), values.end(), all.mutable_data_ptr<float>());
  return all;
}

std::vector<float> values_of(const py::handle& tensor) {
  const at::Tensor all = py::cast<at::Tensor>(tensor).detach().to(at::kCPU, at::kFloat).contiguous();
  return {all.const_data_ptr<float>(), all.const_data_ptr<float>() + all.numel()};
}

py::dict residuals(const Codec& codec) {
  std::map<std::string, Residual> all;
  {
    py::gil_scoped_release release;
    all = codec->residuals();
  }
  py::dict found;
  for (const auto& [name, r] : all) {
    py::dict one;
    one["sent"] = tensor_of(r.sent);
    one["owned"] = tensor_of(r.owned);
    if (!r.velocity.empty()) one["velocity"] = tensor_of(r.velocity);
    if (!r.memory.empty()) one["memory"] = tensor_of(r.memory);
    one["first"] = r.first;
    one["share"] = r.share;
    one["weight"] = r.weight;
    one["step"] = r.step;
    found[py::str(name)] = one;
  }
  return found;
}

void restore(const Codec& codec, const py::dict& from) {
  std::map<std::string, Residual> all;
  for (const auto& [name, one] : from) {
    Residual& r = all[py::cast<std::string>(name)];
    r.sent = values_of(one["sent"]);
    r.owned = values_of(one["owned"]);
    if (one.contains("velocity")) r.velocity = values_of(one["velocity"]);
    if (one.contains("memory")) r.memory = values_of(one["memory"]);
    r.first = py::cast<std::size_t>(one["first"]);
    r.share = py::cast<double>(one["share"]);
    r.weight = py::cast<double>(one["weight"]);
    r.step = py::cast<std::int64_t>(one["step"]);
  }
  py::gil_scoped_release release;
  codec->restore(std::move(all));
}

Names names_of_codecs() {
  Names names;
  for (const codec::CodecRow* row : codec::codecs()) names.emplace_back(row->name);
  return names;
}

Names parameters_of(const std::string& name) {
  Names names;
  for (const SpecParam& parameter : codec::codec_named(name).schema().params()) names.push_back(parameter.name);
  return names;
}

}  // namespace

void bind_codec(py::module_& m) {
  using Free = py::call_guard<py::gil_scoped_release>;
  py::class_<GradientCodec, Codec>(m, "_GradientCodec")
      .def(py::init([](const std::string& spec, std::uint64_t seed, bool by_values) {
             return std::make_shared<GradientCodec>(spec, seed, by_values ? Verdict::by_values : Verdict::by_caller);
           }),
           py::arg("spec"), py::arg("seed"), py::arg("by_values"))
      .def_property_readonly("spec", &GradientCodec::spec)
      .def_property_readonly("feedback", &GradientCodec::feedback)
      .def_property_readonly("momentum", &GradientCodec::momentum)
      .def("settle", py::overload_cast<bool>(&GradientCodec::settle), Free())
      .def("residuals", &residuals)
      .def("restore", &restore);
  m.def("_codecs", &names_of_codecs);
  m.def("_codec_parameters", &parameters_of);
  m.def("_codec_spec", [](const std::string& spec) { return codec::make(spec)->spec(); });
}

}  // namespace cohort::python
