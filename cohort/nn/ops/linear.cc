#include "cohort/nn/ops/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <atomic>

#include "cohort/nn/ops/product.h"
#include "cohort/nn/ops/product_watcher.h"

namespace cohort::nn {
namespace {

namespace autograd = torch::autograd;

thread_local bool inner_allowed = false;  // InPlaceGradients

bool can_accumulate(const at::Tensor& weight, const at::Tensor& out) {
  const at::Tensor& grad = weight.grad();
  return grad.defined() && grad.is_contiguous() && grad.device().is_cpu() && grad.scalar_type() == out.scalar_type() &&
         !grad.requires_grad() && autograd::impl::hooks(weight).empty();
}

// Two dimensions in, two out.
struct Accumulating : autograd::Function<Accumulating> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return product(x, weight, bias);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, autograd::variable_list given) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &out = given[0];
    autograd::variable_list gradients(3);
    if (context->needs_input_grad(0)) gradients[0] = product(out, weight.t(), {});
    if (context->needs_input_grad(1)) gradients[1] = weight_gradient(weight, out, x);
    if (context->needs_input_grad(2)) gradients[2] = out.sum(0);
    return gradients;
  }

  static at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& out, const at::Tensor& x) {
    if (!plain_backward() || !can_accumulate(weight, out)) return out.t().mm(x);
    at::Tensor sum = weight.grad().detach();
    sum.addmm_(out.t(), x);
    weight.mutable_grad().reset();  // autograd would add to it; undefined, it takes the sum as it is, memory and all
    return sum;
  }
};

}  // namespace

bool plain_backward() {
  const auto* wanted = autograd::get_current_graph_task_exec_info();  // empty: backward() of everything
  return !at::GradMode::is_enabled() && (inner_allowed || wanted == nullptr || wanted->empty());
}

InPlaceGradients::InPlaceGradients(bool allow) : before_(std::exchange(inner_allowed, allow)) {}
InPlaceGradients::~InPlaceGradients() { inner_allowed = before_; }

namespace {

std::atomic<ProductWatcher> product_watcher{nullptr};

}  // namespace

void set_product_watcher(ProductWatcher watcher) { product_watcher = watcher; }

at::Tensor linear(torch::nn::LinearImpl& layer, const at::Tensor& x) {
  const bool ours = layer.bias.defined() && x.dim() >= 2 && x.device().is_cpu() && x.scalar_type() == layer.weight.scalar_type() &&
                    !at::autocast::is_autocast_enabled(at::kCPU);  // there the product has 16 bits, the gradient 32
  if (!ours) return layer.forward(x);
  const at::Tensor y = Accumulating::apply(x.flatten(0, -2), layer.weight, layer.bias);
  if (const ProductWatcher watcher = product_watcher) watcher(layer.weight, x, y);
  if (x.dim() == 2) return y;
  auto sizes = x.sizes().vec();
  sizes.back() = y.size(-1);
  return y.view(sizes);
}

}  // namespace cohort::nn
