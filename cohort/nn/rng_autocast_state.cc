#include "cohort/nn/rng_autocast_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <mutex>

namespace cohort::nn {

RngAutocastState::Device RngAutocastState::read(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const bool casts = at::autocast::is_autocast_available(device.type());
  return {device, generator.get_state(), casts && at::autocast::is_autocast_enabled(device.type()),
          casts ? at::autocast::get_autocast_dtype(device.type()) : at::kFloat};
}

RngAutocastState::RngAutocastState(const std::vector<at::Tensor>& inputs) : cache_(at::autocast::is_autocast_cache_enabled()) {
  devices_.push_back(read(c10::kCPU));
  for (const auto& t : inputs) {
    const bool known =
        !t.defined() || std::any_of(devices_.begin(), devices_.end(), [&](const Device& d) { return d.device == t.device(); });
    if (!known) devices_.push_back(read(t.device()));
  }
}

RngAutocastState::RngAutocastState(const std::vector<Device>& devices) : cache_(at::autocast::is_autocast_cache_enabled()) {
  for (const Device& d : devices) devices_.push_back(read(d.device));
}

void RngAutocastState::apply() const {
  for (const Device& d : devices_) {
    at::Generator generator = at::globalContext().defaultGenerator(d.device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(d.rng);
    if (!at::autocast::is_autocast_available(d.device.type())) continue;
    at::autocast::set_autocast_enabled(d.device.type(), d.autocast);
    at::autocast::set_autocast_dtype(d.device.type(), d.dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
}

RngAutocastGuard::RngAutocastGuard(const RngAutocastState& to) : now_(to.devices_) { to.apply(); }
RngAutocastGuard::~RngAutocastGuard() { now_.apply(); }

AutocastCacheGuard::AutocastCacheGuard() { at::autocast::clear_cache(); }
AutocastCacheGuard::~AutocastCacheGuard() { at::autocast::clear_cache(); }

}  // namespace cohort::nn
