#include "cohort/sync/buffer_pool.h"

#include <algorithm>

namespace cohort::sync {

collective::Region BufferPool::acquire(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) best = it;
  ++in_use_;
  if (best != free_.end()) {
    collective::Region region = std::move(*best);
    free_.erase(best);
    return region;
  }
  if (!free_.empty()) {  // too small for this bucket: it is replaced by one that does for both
    const auto largest = std::max_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) { return a.bytes() < b.bytes(); });
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.bytes() == largest->bytes(); });
    bytes_ -= largest->bytes();
    entries_.erase(entry);
    free_.erase(largest);
  }
  collective::Region region = comm_.allocate(bytes, device_);
  entries_.emplace_back(MemoryClass::buckets, region.bytes());
  bytes_ += region.bytes();
  return region;
}

void BufferPool::release(collective::Region region) {
  const std::lock_guard lock(mutex_);
  --in_use_;
  free_.push_back(std::move(region));
}

std::size_t BufferPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::size_t BufferPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace cohort::sync
