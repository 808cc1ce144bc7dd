#include "cohort/python/train/python_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/nn/module.h>

#include <unordered_map>

#include "cohort/base/error.h"

namespace py = pybind11;

namespace cohort::python {
namespace {

// The root: tells Python's module whether it trains.
class ModuleOfPython final : public torch::nn::Module {
 public:
  ModuleOfPython(std::string name, PythonObject module, ExceptionSlot& slot)
      : torch::nn::Module(std::move(name)), module_(std::move(module)), slot_(slot) {}

  void train(bool on) override {
    torch::nn::Module::train(on);
    slot_.call("train() of the model", [&] { handle_of(module_).attr("train")(on); });
  }

 private:
  const PythonObject module_;
  ExceptionSlot& slot_;
};

at::Tensor checked(const py::handle& value, const std::string& name) {
  if (!THPVariable_Check(value.ptr())) throw_failure(Kind::usage, "{} of the model is no tensor", name);
  const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
  if (py::hasattr(value, "materialize"))
    throw_failure(Kind::usage, "{} has no size yet: run the model once on a sample before it is trained (lazy modules)", name);
  if (tensor.is_sparse() || tensor.is_meta())
    throw_failure(Kind::usage, "{} is a {} tensor: a dense one with values is needed", name, tensor.is_meta() ? "meta" : "sparse");
  return tensor;
}

at::Tensor checked_parameter(const py::handle& value, const std::string& name) {
  const at::Tensor parameter = checked(value, name);
  if (!parameter.requires_grad()) return parameter;
  if (parameter.scalar_type() != at::kFloat && parameter.scalar_type() != at::kDouble)
    throw_failure(Kind::usage, "parameter {} is {}: parameters are trained in float32 or float64 (`precision: bf16` computes in 16 bits)",
                  name, c10::toString(parameter.scalar_type()));
  if (!parameter.is_leaf()) throw_failure(Kind::usage, "parameter {} is the result of an operation: it cannot be trained", name);
  return parameter;
}

// Mirrors a tree of Python modules.
class Tree {
 public:
  explicit Tree(ExceptionSlot& slot) : slot_(slot) {}

  std::shared_ptr<torch::nn::Module> root(const PythonObject& module) {
    auto name = py::cast<std::string>(py::type::of(handle_of(module)).attr("__name__"));
    return fill(handle_of(module), std::make_shared<ModuleOfPython>(std::move(name), module, slot_), "");
  }
  std::shared_ptr<torch::nn::Module> find(const PythonObject& module) const { return nodes_.at(module.get()); }

 private:
  std::shared_ptr<torch::nn::Module> fill(const py::handle& module, std::shared_ptr<torch::nn::Module> node, const std::string& prefix) {
    if (!open_.emplace(module.ptr(), true).second) throw_failure(Kind::usage, "module '{}' of the model contains itself", prefix);
    for (const auto& [key, value] : py::cast<py::dict>(module.attr("_parameters"))) {
      const auto name = py::cast<std::string>(key);
      if (value.is_none()) continue;
      const at::Tensor parameter = checked_parameter(value, prefix + name);
      node->register_parameter(name, parameter, parameter.requires_grad());
    }
    const auto own = py::cast<py::set>(module.attr("_non_persistent_buffers_set"));
    for (const auto& [key, value] : py::cast<py::dict>(module.attr("_buffers")))
      if (!value.is_none() && !own.contains(key))
        node->register_buffer(py::cast<std::string>(key), checked(value, prefix + py::cast<std::string>(key)));
    for (const auto& [key, child] : py::cast<py::dict>(module.attr("_modules"))) {
      if (child.is_none()) continue;
      const auto name = py::cast<std::string>(key);
      const auto known = nodes_.find(child.ptr());  // a module that is there twice is one
      node->register_module(
          name, known != nodes_.end() ? known->second : fill(child, std::make_shared<torch::nn::Module>(name), prefix + name + "."));
    }
    open_.erase(module.ptr());
    return nodes_[module.ptr()] = std::move(node);
  }

  ExceptionSlot& slot_;
  std::unordered_map<const PyObject*, std::shared_ptr<torch::nn::Module>> nodes_;
  std::unordered_map<const PyObject*, bool> open_;  // the way down from the root
};

at::Tensor run_block(const std::string& name, const PythonObject& call, const at::Tensor& x) {
  const py::object result = handle_of(call)(x);
  if (THPVariable_Check(result.ptr())) return THPVariable_Unpack(result.ptr());
  PyErr_Format(PyExc_TypeError, "forward of block '%s' returned %s, and training needs one tensor; wrap the model in one that picks it",
               name.c_str(), Py_TYPE(result.ptr())->tp_name);
  throw py::error_already_set();
}

}  // namespace

nn::Model model_of(const PythonObject& module, const std::vector<BlockOfModel>& blocks, ExceptionSlot& slot,
                   const std::function<at::Tensor(const at::Tensor&)>& finish) {
  Tree tree(slot);
  nn::Model model(tree.root(module), {});
  for (const BlockOfModel& block : blocks) {
    nn::Block made{.name = block.name, .modules = {}, .forward = {}};
    for (const auto& part : block.modules) made.modules.push_back(tree.find(part));
    const auto last = &block == &blocks.back() ? finish : nullptr;
    made.forward = [&slot, name = block.name, where = fmt::format("forward of block '{}'", block.name), call = block.call,
                    last](const at::Tensor& x) {
      const at::Tensor y = slot.call(where, [&] { return run_block(name, call, x); });
      return last ? last(y) : y;
    };
    model.add(std::move(made));
  }
  return model;
}

std::vector<at::Tensor> values_of(const nn::Model& model) {
  std::vector<at::Tensor> values;
  for (const auto& [name, t] : model.named_parameters()) values.push_back(t.detach().clone());
  for (const auto& [name, t] : model.named_buffers()) values.push_back(t.detach().clone());
  return values;
}

void set_values(const nn::Model& model, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  auto value = values.begin();
  for (auto& [name, t] : model.named_parameters()) {
    t.mutable_grad().reset();
    t.set_data((value++)->clone());
  }
  for (auto& [name, t] : model.named_buffers()) t.copy_(*value++);
}

bool release_parameters(const nn::Model& model) {
  const at::NoGradGuard no_grad;
  bool whole = true;
  for (auto& [name, t] : model.named_parameters()) {
    if (!t.requires_grad()) continue;  // it never moved
    t.mutable_grad().reset();
    const bool sharded = t.numel() > 0 && t.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() == nullptr;
    t.set_data(sharded ? at::empty({0}, t.options().requires_grad(false)) : t.detach().clone());
    whole = whole && !sharded;
  }
  return whole;
}

}  // namespace cohort::python
