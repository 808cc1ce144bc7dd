#include "cohort/nn/unshard/unsharder.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "cohort/base/error.h"
#include "cohort/nn/recompute.h"
#include "cohort/nn/unshard/block_order.h"

namespace cohort::nn {
namespace {

namespace autograd = torch::autograd;

constexpr int kNoBackward = -1;  // torch's number of the backward that is running
bool in_backward() { return autograd::get_current_graph_task_id() != kNoBackward; }

// The same memory and version counter under another TensorImpl: autograd knows it as no view, so it may be changed in place.
at::Tensor shared_with(const at::Tensor& t) { return at::Tensor(t.tensor_data()); }

}  // namespace

std::vector<std::vector<std::size_t>> assign_units(const Model& model, const NamedTensors& parameters) {
  std::unordered_map<const c10::TensorImpl*, std::vector<std::size_t>> blocks_of;
  for (std::size_t b = 0; b < model.blocks().size(); ++b)
    for (const auto& [name, parameter] : model.named_parameters(model.blocks()[b])) blocks_of[parameter.unsafeGetTensorImpl()].push_back(b);
  std::map<std::pair<std::vector<std::size_t>, at::ScalarType>, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = blocks_of.find(parameters[i].second.unsafeGetTensorImpl());
    if (found != blocks_of.end()) groups[{found->second, parameters[i].second.scalar_type()}].push_back(i);
  }
  std::vector<std::vector<std::size_t>> units;
  for (auto& [key, members] : groups) units.push_back(std::move(members));
  return units;
}

// One run of a block: what its Enter and Exit in the graph know.
struct Unsharder::Use : torch::CustomClassHolder {
  std::weak_ptr<Impl> impl;
  std::string block;
  std::vector<std::size_t> units;
  int open = 0;  // backwards that have loaded the units and not unloaded them yet
};

struct Unsharder::Impl {
  using UsePtr = c10::intrusive_ptr<Use>;
  struct Known {
    std::vector<const torch::nn::Module*> modules;
    std::vector<std::size_t> units;
  };

  Impl(UnitLoader& loader, std::vector<Unit> list, std::size_t blocks_ahead) : units(loader, std::move(list)), ahead(blocks_ahead) {}

  const Known& find(const std::string& block, const std::vector<const torch::nn::Module*>& modules) {
    const auto known = blocks.find(block);
    if (known != blocks.end() && known->second.modules == modules) return known->second;
    if (known != blocks.end())
      throw_failure(Kind::usage,
                    "two blocks are called '{}': give the second one a name of its own, the order of blocks is recorded by name", block);
    std::vector<at::Tensor> parameters;
    for (const auto* module : modules)
      for (const auto& parameter : module->parameters()) parameters.push_back(parameter);
    return blocks.emplace(block, Known{modules, units.of(parameters)}).first->second;
  }

  void fetch_ahead(const std::string& block) {
    for (const std::string& next : order.next(block, ahead))
      for (const std::size_t unit : blocks.at(next).units) units.prefetch(unit);
  }

  void starts(const std::string& block, bool training) {
    if (in_backward()) return;  // recomputation
    recover();
    if (order.begins_pass(block, training)) units.forget_prefetched();
  }

  void load_for_backward(const UsePtr& use) {
    units.acquire(use->units);
    ++use->open;
    open.push_back(use);
    autograd::Engine::get_default_engine().queue_callback([use, self = use->impl] {
      if (const auto impl = self.lock()) impl->unload(use);
    });
    order.went_back();
    fetch_ahead(use->block);
  }

  void unload(const UsePtr& use) noexcept {
    if (use->open == 0) return;
    --use->open;
    open.erase(std::find(open.begin(), open.end(), use));
    units.release(use->units);
  }

  void recover() noexcept {
    while (!open.empty()) unload(UsePtr(open.back()));
  }

  Units units;
  const std::size_t ahead;
  std::map<std::string, Known> blocks;
  BlockOrder order;
  std::vector<UsePtr> open;  // uses whose units a backward has loaded
};

struct Unsharder::Enter : autograd::Function<Enter> {
  static Tensors forward(autograd::AutogradContext* context, const c10::intrusive_ptr<Use>& use, at::TensorList inputs) {
    context->saved_data["use"] = c10::IValue::make_capsule(use);
    context->set_materialize_grads(false);
    Tensors same;
    for (const auto& t : inputs) same.push_back(shared_with(t));
    return same;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, autograd::variable_list gradients) {
    const auto use = c10::static_intrusive_pointer_cast<Use>(context->saved_data["use"].toCapsule());
    if (const auto impl = use->impl.lock()) impl->unload(use);
    gradients.insert(gradients.begin(), at::Tensor());  // none for the use
    return gradients;
  }
};

struct Unsharder::Exit : autograd::Function<Exit> {
  static Tensors forward(autograd::AutogradContext* context, const c10::intrusive_ptr<Use>& use, at::TensorList outputs) {
    return Enter::forward(context, use, outputs);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, autograd::variable_list gradients) {
    const auto use = c10::static_intrusive_pointer_cast<Use>(context->saved_data["use"].toCapsule());
    const auto impl = use->impl.lock();
    if (!impl) throw_failure(Kind::usage, "backward through block '{}' after the engine that has its parameters was destroyed", use->block);
    impl->load_for_backward(use);
    gradients.insert(gradients.begin(), at::Tensor());
    return gradients;
  }
};

namespace {

// Tensors that need a gradient go through the node, the others past it: behind a node all would need one.
template <class Node, class Use>
std::vector<at::Tensor> through(const Use& use, std::vector<at::Tensor> tensors) {
  const auto needs = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  std::vector<at::Tensor> going;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(going), needs);
  if (going.empty() || !at::GradMode::is_enabled()) return tensors;
  const auto gone = Node::apply(use, at::TensorList(going));  // autograd does not look into a vector
  auto next = gone.begin();
  for (auto& t : tensors)
    if (needs(t)) t = *next++;
  return tensors;
}

}  // namespace

Unsharder::Unsharder(UnitLoader& loader, std::vector<Unit> units, std::size_t ahead)
    : impl_(std::make_shared<Impl>(loader, std::move(units), ahead)) {}

Unsharder::~Unsharder() { reset(); }

Unsharder::Tensors Unsharder::run(const std::string& block, const std::vector<const torch::nn::Module*>& modules, const Tensors& inputs,
                                  const std::function<Tensors(const Tensors&)>& forward) {
  const bool training = at::GradMode::is_enabled();
  const Impl::Known& known = impl_->find(block, modules);
  impl_->starts(block, training);
  const Hold here(impl_, known.units);  // also when forward throws
  impl_->fetch_ahead(block);
  if (!training) return forward(inputs);
  const auto use = c10::make_intrusive<Use>();
  use->impl = impl_;
  use->block = block;
  use->units = known.units;
  const auto before = versions(inputs);
  Tensors outputs = forward(through<Enter>(use, inputs));
  if (versions(inputs) != before)
    throw_failure(Kind::usage, "block '{}' changes its input in place, which gradients behind it cannot follow: let it work on a copy",
                  block);
  return through<Exit>(use, std::move(outputs));
}

at::Tensor Unsharder::run(const std::string& block, const torch::nn::Module& module, const at::Tensor& x,
                          const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return run(block, {&module}, {x}, [&](const Tensors& in) { return Tensors{forward(in[0])}; })[0];
}

BlockWrapper Unsharder::block_wrapper(BlockWrapper inner) {
  return [this, inner = std::move(inner)](const Block& block, const at::Tensor& x) {
    std::vector<const torch::nn::Module*> modules;
    for (const auto& module : block.modules) modules.push_back(module.get());
    return run(block.name, modules, {x}, [&](const Tensors& in) { return Tensors{inner ? inner(block, in[0]) : block.forward(in[0])}; })[0];
  };
}

Unsharder::Hold::Hold(std::shared_ptr<Impl> impl, std::vector<std::size_t> units) : impl_(std::move(impl)), units_(std::move(units)) {
  impl_->units.acquire(units_);
}
Unsharder::Hold::~Hold() {
  if (impl_) impl_->units.release(units_);
}

Unsharder::Hold Unsharder::hold() {
  std::vector<std::size_t> all(impl_->units.size());
  for (std::size_t u = 0; u < all.size(); ++u) all[u] = u;
  return {impl_, std::move(all)};
}
Unsharder::Hold Unsharder::hold(const at::Tensor& parameter) { return {impl_, impl_->units.of({parameter})}; }

void Unsharder::reset() noexcept {
  impl_->recover();
  impl_->units.forget_prefetched();
}
std::size_t Unsharder::resident() const { return impl_->units.resident(); }
std::size_t Unsharder::most_resident() const { return impl_->units.most_resident(); }

}  // namespace cohort::nn
