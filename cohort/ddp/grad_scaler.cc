#include "cohort/ddp/grad_scaler.h"

#include <torch/torch.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/job/job.h"

namespace cohort::ddp {
namespace {

constexpr std::string_view kBar = " | ";  // between rule and state

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups()) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

// The tensor with the gradient's values; of a sparse one, after repeated indices were added up: their sum can overflow too.
at::Tensor values_of(const at::Tensor& parameter) {
  at::Tensor& grad = parameter.mutable_grad();
  if (grad.scalar_type() != at::kFloat && grad.scalar_type() != at::kDouble)
    throw_failure(Kind::usage, "a gradient of type {}: keep parameters in fp32 and compute in 16 bits under cohort::autocast",
                  c10::toString(grad.scalar_type()));
  if (grad.layout() == at::kStrided) return grad;
  grad = grad.coalesce();
  return grad._values();
}

}  // namespace

GradScaler::GradScaler(std::string_view rule) : scale_(optim::LossScale::parse(rule)) {}
GradScaler::GradScaler(Job& job, std::string_view rule) : GradScaler(job.comm(), rule) {}
GradScaler::GradScaler(collective::Communicator& comm, std::string_view rule) : comm_(&comm), scale_(optim::LossScale::parse(rule)) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  if (!scale_.scales()) return loss;
  const bool narrow = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (narrow ? loss.to(at::kFloat) : loss) * scale_.value();
}

bool GradScaler::finite_on_all(bool finite) const {
  if (comm_ == nullptr || comm_->size() == 1) return finite;
  std::int32_t overflow = finite ? 0 : 1;
  comm_->all_reduce(collective::piece(std::span(&overflow, 1)), collective::Op::max, {.name = "overflow of a gradient"});
  return overflow == 0;
}

namespace {

// The flag and the factor of gradients on one device: torch wants both where the gradients are.
struct Unscaling {
  at::Tensor found, factor;
  Unscaling(at::Device device, double by)
      : found(at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device))),
        factor(at::full({1}, by, at::TensorOptions().dtype(at::kFloat).device(device))) {}
};

}  // namespace

bool GradScaler::unscale(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<Unscaling> devices;
  std::vector<const void*> now;
  for (const at::Tensor& p : parameters) {
    if (finite_.contains(p.unsafeGetTensorImpl())) continue;
    now.push_back(p.unsafeGetTensorImpl());
    if (!p.grad().defined()) continue;
    at::Tensor values = values_of(p);
    auto here = std::ranges::find(devices, values.device(), [](const Unscaling& one) { return one.found.device(); });
    if (here == devices.end()) here = devices.insert(here, Unscaling(values.device(), 1 / scale_.value()));
    at::_amp_foreach_non_finite_check_and_unscale_(at::TensorList(&values, 1), here->found, here->factor);
  }
  if (!now.empty()) {  // once for each device this thread waits for it
    const bool finite = finite_on_all(std::ranges::all_of(devices, [](const Unscaling& one) { return one.found.item<float>() == 0; }));
    for (const void* p : now) finite_[p] = finite;
  }
  return std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& p) { return finite_.at(p.unsafeGetTensorImpl()); });
}

bool GradScaler::unscale(const torch::optim::Optimizer& optimizer) { return unscale(parameters_of(optimizer)); }

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!unscale(optimizer)) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (finite_.empty()) throw_failure(Kind::usage, "GradScaler: update() before step() or unscale(): no gradient was unscaled");
  const bool overflow = std::any_of(finite_.begin(), finite_.end(), [](const auto& seen) { return !seen.second; });
  finite_.clear();
  scale_.update(overflow);
}

std::string GradScaler::state() const { return scale_.spec() + std::string(kBar) + to_text(scale_.state()); }

void GradScaler::restore(std::string_view state) {
  const auto bar = state.rfind(kBar);
  if (bar == std::string_view::npos) throw_failure(Kind::corrupt, "GradScaler: '{}' is no state of one", state.substr(0, 80));
  scale_.restore(optim::scale_state_of(state.substr(bar + kBar.size())), state.substr(0, bar));
}

}  // namespace cohort::ddp
