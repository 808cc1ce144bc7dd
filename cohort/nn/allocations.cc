#include "cohort/nn/allocations.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

#include "cohort/nn/surroundings.h"

namespace cohort::nn {

struct AllocationMeter::Reporter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::int64_t here = now += bytes;
    if (here > peak) peak = here;  // one thread allocates at a time
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::atomic<std::int64_t> now{0}, peak{0};
};

struct AllocationMeter::Impl {
  std::shared_ptr<Reporter> reporter = std::make_shared<Reporter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reporter};
};

AllocationMeter::AllocationMeter() : impl_(std::make_unique<Impl>()) {}
AllocationMeter::~AllocationMeter() = default;
std::size_t AllocationMeter::now() const { return static_cast<std::size_t>(std::max<std::int64_t>(0, impl_->reporter->now)); }
std::size_t AllocationMeter::peak() const { return static_cast<std::size_t>(impl_->reporter->peak.load()); }

std::vector<KeptBytes> measure_activations(const Model& model, const at::Tensor& x) {
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;
  for (const auto& [name, buffer] : model.named_buffers()) buffers.emplace_back(buffer, buffer.clone());
  std::vector<KeptBytes> list;
  {
    const Return back{Surroundings({x})};
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
