#include "cohort/nn/activation_bytes.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/nn/allocation_meter.h"
#include "cohort/nn/rng_autocast_state.h"

namespace cohort::nn {

std::vector<ActivationBytes> measure_activations(const Model& model, const at::Tensor& x) {
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;
  for (const auto& [name, buffer] : model.named_buffers()) buffers.emplace_back(buffer, buffer.clone());
  std::vector<ActivationBytes> list;
  {
    const RngAutocastGuard back{RngAutocastState({x})};
    const at::AutoGradMode grad(true);
    const AllocationMeter meter;
    at::Tensor now = x;
    std::vector<at::Tensor> outputs;  // all alive: what is counted stays counted
    for (const Block& block : model.blocks()) {
      const std::size_t before = meter.now();
      now = block.forward(now);
      const std::size_t kept = meter.now() - std::min(before, meter.now());
      list.push_back({kept, std::min(kept, now.nbytes())});
      outputs.push_back(now);
    }
  }
  const at::AutoGradMode no_grad(false);
  for (const auto& [buffer, before] : buffers) buffer.copy_(before);
  return list;
}

}  // namespace cohort::nn
