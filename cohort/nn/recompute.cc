#include "cohort/nn/recompute.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

#include "cohort/base/error.h"
#include "cohort/nn/ops/linear.h"
#include "cohort/nn/rng_autocast_state.h"

namespace cohort::nn {
namespace {

namespace autograd = torch::autograd;

bool needs_gradient(const at::Tensor& t) { return t.defined() && t.requires_grad(); }
bool is_among(const TensorList& tensors, const at::Tensor& t) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& other) { return other.is_same(t); });
}

// Where a graph of the function's own begins.
TensorList detached(const TensorList& inputs) {
  TensorList list;
  for (const auto& t : inputs) list.push_back(t.defined() ? t.detach().requires_grad_(t.requires_grad()) : t);
  return list;
}

// The leaves that the graph of `outputs` ends in, but for `inputs`: parameters. All its nodes must be younger than `born`.
TensorList find_leaves(const TensorList& outputs, const TensorList& inputs, std::uint64_t born) {
  TensorList leaves;
  std::vector<autograd::Node*> todo;
  std::unordered_set<const autograd::Node*> seen;
  const auto visit = [&](autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) todo.push_back(node);
  };
  for (const auto& t : outputs)
    if (needs_gradient(t)) visit(autograd::impl::gradient_edge(t).function.get());
  while (!todo.empty()) {
    autograd::Node* const node = todo.back();
    todo.pop_back();
    if (const auto* leaf = dynamic_cast<autograd::AccumulateGrad*>(node)) {
      if (!is_among(inputs, leaf->variable)) leaves.push_back(leaf->variable);
      continue;
    }
    if (node->sequence_nr() < born)
      throw_failure(Kind::usage,
                    "recompute: the function captures a tensor with a history (made by {}): pass it as an input, or gradients would not "
                    "find their way",
                    node->name());
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return leaves;
}

// What buffers hold comes back, unnoticed by autograd: batch norm saves its running means, though it does not read them.
class Unchanged {
 public:
  explicit Unchanged(const TensorList& buffers) : buffers_(buffers) {
    for (const auto& b : buffers) copies_.push_back(b.detach().clone());
  }
  ~Unchanged() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) at::Tensor(buffers_[i].variable_data()).copy_(copies_[i]);
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  const TensorList& buffers_;
  TensorList copies_;
};

// A function that has run and will run again.
struct Run : torch::CustomClassHolder {
  Run(TensorsFunction f, const TensorList& in, TensorList b) : function(std::move(f)), then(in), buffers(std::move(b)) {}

  TensorList again(const TensorList& in) {
    const AutocastCacheGuard casts;
    const RngAutocastGuard back(then);
    const Unchanged statistics(buffers);
    const at::AutoGradMode grad(true);
    const auto born = at::sequence_number::peek();
    TensorList out = function(in);
    if (out.size() != count)
      throw_failure(Kind::usage, "recompute: the function gave {} tensors, and {} when run again", count, out.size());
    for (const auto& leaf : find_leaves(out, in, born))
      if (!is_among(leaves, leaf))
        throw_failure(Kind::usage,
                      "recompute: the function read other parameters when it ran again (one of {} elements): it must do the same",
                      leaf.numel());
    return out;
  }

  TensorsFunction function;
  const RngAutocastState then;
  const TensorList buffers;
  TensorList leaves, inputs, outputs;  // the last two until they are handed to the node
  std::vector<bool> through;           // inputs that need a gradient
  std::size_t count = 0;               // of outputs
};

struct Recomputed : autograd::Function<Recomputed> {
  // into: inputs that need a gradient, then parameters
  static autograd::variable_list forward(autograd::AutogradContext* context, const c10::intrusive_ptr<Run>& run, at::TensorList into) {
    (void)into;
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->save_for_backward(std::exchange(run->inputs, {}));
    context->set_materialize_grads(false);
    TensorList outputs, constant;
    for (const auto& t : std::exchange(run->outputs, {})) {
      outputs.push_back(t.defined() ? at::Tensor(t.tensor_data()) : t);
      if (!needs_gradient(t)) constant.push_back(outputs.back());
    }
    context->mark_non_differentiable(constant);
    return outputs;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, autograd::variable_list given) {
    if (at::GradMode::is_enabled())
      throw_failure(Kind::usage, "recompute: gradients of gradients (create_graph) cannot be taken through it: call the function itself");
    const auto run = c10::static_intrusive_pointer_cast<Run>(context->saved_data["run"].toCapsule());
    const TensorList inputs = detached(context->get_saved_variables());
    TensorList from, gradients, to;
    std::vector<std::size_t> places;
    TensorList into;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (run->through[i]) into.push_back(inputs[i]);
    into.insert(into.end(), run->leaves.begin(), run->leaves.end());
    {
      TensorList outputs = run->again(inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!given[i].defined() || !needs_gradient(outputs[i])) continue;
        from.push_back(std::move(outputs[i]));
        gradients.push_back(std::move(given[i]));
      }
    }
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (!context->needs_input_grad(i)) continue;
      to.push_back(into[i]);
      places.push_back(i + 1);
    }
    autograd::variable_list result(into.size() + 1);  // the first is the run
    if (from.empty() || to.empty()) return result;
    const InPlaceGradients allowed(plain_backward());
    TensorList found = autograd::grad(from, to, gradients, false, false, true);
    for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = std::move(found[i]);
    return result;
  }
};

}  // namespace

std::vector<std::int64_t> versions(const TensorList& tensors) {
  std::vector<std::int64_t> list;
  for (const auto& t : tensors) list.push_back(t.defined() && !t.is_inference() ? static_cast<std::int64_t>(t._version()) : 0);
  return list;
}

TensorList recompute(TensorsFunction function, const TensorList& inputs, TensorList buffers) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  const auto run = c10::make_intrusive<Run>(std::move(function), inputs, std::move(buffers));
  const auto before = versions(inputs);
  const TensorList own = detached(inputs);
  const auto born = at::sequence_number::peek();
  {
    const AutocastCacheGuard casts;
    run->outputs = run->function(own);  // with its graph, which shows the parameters and is dropped then
  }
  if (versions(inputs) != before)
    throw_failure(Kind::usage, "recompute: the function changes an input in place, so it cannot run again: let it work on a copy");
  run->leaves = find_leaves(run->outputs, own, born);
  run->count = run->outputs.size();
  TensorList into;
  for (const auto& t : inputs) {
    run->through.push_back(needs_gradient(t));
    if (needs_gradient(t)) into.push_back(t);
  }
  into.insert(into.end(), run->leaves.begin(), run->leaves.end());
  if (into.empty()) return std::exchange(run->outputs, {});
  run->inputs = inputs;
  return Recomputed::apply(run, at::TensorList(into));  // autograd does not look into a vector
}

at::Tensor recompute(const Block& block, const at::Tensor& x) {
  TensorList buffers;
  for (const auto& module : block.modules)
    for (const auto& buffer : module->buffers()) buffers.push_back(buffer);
  return recompute([forward = block.forward](const TensorList& in) { return TensorList{forward(in[0])}; }, {x}, std::move(buffers))[0];
}

}  // namespace cohort::nn
