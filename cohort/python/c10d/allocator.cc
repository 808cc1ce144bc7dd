#include "cohort/python/c10d/allocator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <bit>
#include <cstring>

#include "cohort/base/log.h"

namespace cohort::python {
namespace {

constexpr std::size_t kSmallest = 64_KiB;  // below this a segment of its own wastes more than it saves
constexpr std::size_t kSteps = 8;          // sizes per power of two: at most an eighth is wasted

void copy_back(void* data) { SharedMemoryPool::instance().release(data); }

}  // namespace

SharedMemoryPool& SharedMemoryPool::of(Rank me) {
  static auto* const pool = new SharedMemoryPool(me);
  return *pool;
}

std::size_t SharedMemoryPool::size_class(std::size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  return round_up(bytes, std::max(kPageBytes, std::bit_floor(bytes) / kSteps));
}

at::DataPtr SharedMemoryPool::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  collective::Region region;
  {
    const std::lock_guard lock(mutex_);
    if (auto& kept = free_[size]; !kept.empty()) {
      region = std::move(kept.back());
      kept.pop_back();
      stats_.cached -= size;
    }
  }
  if (region.data() == nullptr) region = arena_->allocate(size);
  void* const data = region.data();
  const std::lock_guard lock(mutex_);
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  used_.emplace(data, std::move(region));
  return {data, data, &copy_back, at::kCPU};
}

bool SharedMemoryPool::release(void* data) noexcept {
  collective::Region gone;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(data);
  if (found == used_.end()) return false;
  collective::Region region = std::move(found->second);
  const std::size_t size = region.bytes();
  used_.erase(found);
  stats_.in_use -= size;
  // What is cached and what is in use together stay within 1.25 times the peak use.
  if (stats_.in_use + stats_.cached + size > stats_.peak + stats_.peak / 4) {
    gone = std::move(region);
  } else {
    stats_.cached += size;
    free_[size].push_back(std::move(region));
  }
  return true;
}

SharedMemoryPool::Stats SharedMemoryPool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

at::Tensor SharedMemoryPool::tensor(at::IntArrayRef sizes, at::ScalarType type) {
  std::size_t bytes = c10::elementSize(type);
  for (const auto size : sizes) bytes *= static_cast<std::size_t>(size);
  auto held = std::make_shared<at::DataPtr>(allocate(std::max<std::size_t>(bytes, 1)));
  return at::from_blob(
      held->get(), sizes, [held](void*) mutable { held.reset(); }, at::TensorOptions().dtype(type));
}

// ---- every large tensor

namespace {

std::atomic<std::size_t> least_bytes{0};

void release_either(void* data) {
  if (!SharedMemoryPool::instance().release(data)) c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

class LargeFromPool final : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    const std::size_t least = least_bytes.load(std::memory_order_relaxed);
    if (least == 0 || bytes < least) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    try {
      return SharedMemoryPool::instance().allocate(bytes);
    } catch (const Failure& failure) {
      log_warning("a tensor of {} bytes goes to ordinary memory: {}", bytes, failure.what());
      return c10::GetDefaultCPUAllocator()->allocate(bytes);
    }
  }
  at::DeleterFnPtr raw_deleter() const override { return &release_either; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void serve_large_tensors(std::size_t threshold) {
  static auto* const allocator = new LargeFromPool;  // torch keeps the pointer for good
  least_bytes.store(threshold == 0 ? 0 : std::max(threshold, kSmallest));
  c10::SetCPUAllocator(threshold == 0 ? c10::GetDefaultCPUAllocator() : static_cast<c10::Allocator*>(allocator));
}

}  // namespace cohort::python
