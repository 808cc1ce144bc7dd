// For tests: rules that libtorch does not have, in a plain loop over whole tensors on one thread. That they follow their formulas, and
// torch's where its Python has them, is shown in cohort/optim; here it counts that ranks, stages and groups change nothing.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/ddp/layer_wise_reference.h"
#include "cohort/optim/exact_sum.h"
#include "cohort/optim/optimizer.h"

namespace cohort::ddp {

class OwnRule final : public LayerWise {
 public:
  template <class Parameters>  // or groups of them
  OwnRule(Parameters parameters, const LayerWiseOptions& defaults)
      : LayerWise(std::move(parameters), defaults), rule_(optim::make(defaults.rule())) {}

 private:
  static std::string name_of(const at::Tensor& p) {
    const std::string layer = p.size(0) == 3 ? "head" : "in";
    return layer + (p.dim() > 1 ? ".weight" : ".bias");
  }

  void move(at::Tensor& w, const at::Tensor& g, double lr, double decay) override {
    const optim::TensorInfo info{name_of(w), w.sizes().vec(), Dtype::f64};
    auto& kept = kept_[w.unsafeGetTensorImpl()];
    const auto specs = rule_->state(info);
    if (kept.empty())
      for (const auto& spec : specs) kept.push_back(at::full(spec.shape, spec.initial, w.options()));
    std::vector<void*> state;
    for (const at::Tensor& t : kept) state.push_back(t.data_ptr());
    optim::Slice slice{.param = w.data_ptr(),
                       .grad = g.data_ptr(),
                       .state = state,
                       .count = static_cast<std::size_t>(w.numel()),
                       .dtype = Dtype::f64,
                       .lr_scale = lr / rule_->default_lr(),
                       .weight_decay = decay,
                       .name = info.name,
                       .shape = info.shape};
    const optim::StepInfo step{.step = steps_, .lr = rule_->default_lr()};
    const std::vector<double> sums = measured(slice, step);
    slice.sums = sums;
    rule_->update(slice, step);
  }

  std::vector<double> measured(optim::Slice slice, const optim::StepInfo& step) const {
    std::vector<double> sums;
    for (int round = 0; round < rule_->needs().rounds; ++round) {
      std::vector<optim::ExactSum> exact(static_cast<std::size_t>(rule_->needs().per_tensor));
      slice.sums = sums;
      rule_->measure(round, slice, step, exact);
      for (const auto& sum : exact) sums.push_back(sum.value());
    }
    return sums;
  }

  std::unique_ptr<optim::Optimizer> rule_;
  std::map<const void*, std::vector<at::Tensor>> kept_;
};

}  // namespace cohort::ddp
