// For tests: rules of whole tensors (optim::Grain::tensor), which libtorch does not have, in a plain loop over whole tensors on one thread.
// That they are torch's is shown by figures of torch's Python in cohort/optim; here it counts that ranks, stages and groups change nothing.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/ddp/layer_wise_reference.h"
#include "cohort/optim/optimizer.h"

namespace cohort::ddp {

class WholeTensors : public LayerWise {
 public:
  using LayerWise::LayerWise;

 protected:
  // Parameters of the test's net are known by their shapes.
  virtual std::string rule() const = 0;

 private:
  static std::string name_of(const at::Tensor& p) {
    const std::string layer = p.size(0) == 3 ? "head" : "in";
    return layer + (p.dim() > 1 ? ".weight" : ".bias");
  }

  void move(at::Tensor& w, const at::Tensor& g, double lr, double decay) override {
    if (!rule_) rule_ = optim::make(rule());
    const optim::TensorInfo info{name_of(w), w.sizes().vec(), Dtype::f64};
    auto& kept = kept_[w.unsafeGetTensorImpl()];
    const auto specs = rule_->state(info);
    if (kept.empty())
      for (const auto& spec : specs) kept.push_back(at::full(spec.shape, spec.initial, w.options()));
    std::vector<void*> state;
    for (const at::Tensor& t : kept) state.push_back(t.data_ptr());
    rule_->update({.param = w.data_ptr(),
                   .grad = g.data_ptr(),
                   .state = state,
                   .count = static_cast<std::size_t>(w.numel()),
                   .dtype = Dtype::f64,
                   .lr_scale = lr / rule_->default_lr(),
                   .weight_decay = decay,
                   .name = info.name,
                   .shape = info.shape},
                  {.step = steps_, .lr = rule_->default_lr()});
  }

  std::unique_ptr<optim::Optimizer> rule_;
  std::map<const void*, std::vector<at::Tensor>> kept_;
};

class Adafactor final : public WholeTensors {
  using WholeTensors::WholeTensors;
  std::string rule() const override { return "adafactor"; }
};

class Muon final : public WholeTensors {
  using WholeTensors::WholeTensors;
  std::string rule() const override { return "muon"; }
};

}  // namespace cohort::ddp
