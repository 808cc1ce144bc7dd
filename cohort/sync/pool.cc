#include "cohort/sync/pool.h"

#include <algorithm>

namespace cohort::sync {

collective::Region Pool::lend(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) best = it;
  ++lent_;
  if (best != free_.end()) {
    collective::Region region = std::move(*best);
    free_.erase(best);
    return region;
  }
  if (!free_.empty()) {  // too small for this bucket: it makes room for one that will do for both
    const auto largest = std::max_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) { return a.bytes() < b.bytes(); });
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.bytes() == largest->bytes(); });
    bytes_ -= largest->bytes();
    entries_.erase(entry);
    free_.erase(largest);
  }
  collective::Region region = comm_.allocate(bytes);
  entries_.emplace_back(MemoryClass::buckets, region.bytes());
  bytes_ += region.bytes();
  return region;
}

void Pool::give_back(collective::Region region) {
  const std::lock_guard lock(mutex_);
  --lent_;
  free_.push_back(std::move(region));
}

std::size_t Pool::lent() const {
  const std::lock_guard lock(mutex_);
  return lent_;
}

std::size_t Pool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace cohort::sync
