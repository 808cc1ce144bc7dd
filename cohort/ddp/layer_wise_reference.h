// For tests: lars and lamb as torch::optim would have them, written with whole tensors.
#pragma once
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::ddp {

struct LayerWiseOptions : torch::optim::OptimizerCloneableOptions<LayerWiseOptions> {
  explicit LayerWiseOptions(double lr) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(std::string, rule);  // of OwnRule
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }
};

class LayerWise : public torch::optim::Optimizer {
 public:
  // libtorch puts values together that groups and defaults give; here a group's are its own.
  LayerWise(const std::vector<torch::optim::OptimizerParamGroup>& groups, const LayerWiseOptions& defaults)
      : Optimizer(groups, std::make_unique<LayerWiseOptions>(defaults)) {
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (groups[i].has_options()) param_groups()[i].set_options(groups[i].options().clone());
  }
  LayerWise(std::vector<at::Tensor> parameters, const LayerWiseOptions& defaults)
      : LayerWise(std::vector<torch::optim::OptimizerParamGroup>{torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

  at::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    ++steps_;
    for (auto& group : param_groups()) {
      const auto& options = static_cast<const LayerWiseOptions&>(group.options());
      for (auto& p : group.params()) move(p, p.grad(), options.lr(), options.weight_decay());
    }
    return {};
  }

 protected:
  at::Tensor& state(const at::Tensor& p, int which) {
    at::Tensor& found = state_[{p.unsafeGetTensorImpl(), which}];
    if (!found.defined()) found = at::zeros_like(p);
    return found;
  }
  int steps_ = 0;

 private:
  virtual void move(at::Tensor& w, const at::Tensor& g, double lr, double decay) = 0;
  std::map<std::pair<const void*, int>, at::Tensor> state_;
};

class Lars final : public LayerWise {
  using LayerWise::LayerWise;
  void move(at::Tensor& w, const at::Tensor& g, double lr, double decay) override {
    const double weights = w.norm().item<double>(), gradient = g.norm().item<double>();
    const double ratio = weights > 0 && gradient > 0 ? 0.001 * weights / (gradient + decay * weights + 1e-8) : 1;
    at::Tensor& b = state(w, 0);
    b.mul_(0.9).add_((g + decay * w) * ratio);
    w.sub_(b * lr);
  }
};

class Lamb final : public LayerWise {
  using LayerWise::LayerWise;
  void move(at::Tensor& w, const at::Tensor& g, double lr, double decay) override {
    at::Tensor &m = state(w, 0), &v = state(w, 1);
    m.mul_(0.9).add_(g * 0.1);
    v.mul_(0.999).add_(g * g * 0.001);
    const at::Tensor u = m / (1 - std::pow(0.9, steps_)) / ((v / (1 - std::pow(0.999, steps_))).sqrt() + 1e-6) + decay * w;
    const double weights = w.norm().item<double>(), length = u.norm().item<double>();
    w.sub_(u * (lr * (decay != 0 && weights > 0 && length > 0 ? weights / length : 1)));
  }
};

}  // namespace cohort::ddp
