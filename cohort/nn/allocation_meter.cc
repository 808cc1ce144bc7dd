#include "cohort/nn/allocation_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

namespace cohort::nn {
namespace {

// torch reports every allocation to the thread's debug info: the interface its own profiler counts memory with.
class Count : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, int64_t alloc_size, size_t /*total*/, size_t /*reserved*/, c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::int64_t held = now.fetch_add(alloc_size, std::memory_order_relaxed) + alloc_size;
    std::int64_t highest = peak.load(std::memory_order_relaxed);
    while (highest < held && !peak.compare_exchange_weak(highest, held, std::memory_order_relaxed)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::atomic<std::int64_t> now{0}, peak{0};  // below zero: what was allocated before is freed
};

}  // namespace

struct AllocationMeter::Impl {
  std::shared_ptr<Count> count = std::make_shared<Count>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, count};
};

AllocationMeter::AllocationMeter() : impl_(std::make_unique<Impl>()) {}
AllocationMeter::~AllocationMeter() = default;
std::size_t AllocationMeter::now() const { return static_cast<std::size_t>(std::max<std::int64_t>(0, impl_->count->now)); }
std::size_t AllocationMeter::peak() const { return static_cast<std::size_t>(std::max<std::int64_t>(0, impl_->count->peak)); }
void AllocationMeter::restart() { impl_->count->peak = impl_->count->now.load(); }

}  // namespace cohort::nn
