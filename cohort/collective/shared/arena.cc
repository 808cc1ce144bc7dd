#include "cohort/collective/shared/arena.h"

#include <fmt/format.h>

#include <mutex>

namespace cohort::collective {
namespace {

// One core reads all ranks' buffers side by side: each starts a page and some lines later than the one before, so that they share neither
// cache sets nor memory banks. Figures: docs/bench.md#skew.
constexpr std::size_t kSkewBytes = 4096 + 1024 + 64;
constexpr int kSkewRanks = 64;  // then it starts over

}  // namespace

struct Arena::Allocation {
  std::shared_ptr<Arena> arena;
  Segment segment;
  ~Allocation() {
    {
      const std::unique_lock lock(arena->mutex_);
      arena->own_.erase(segment.data());
    }
    segment.retired().store(1, std::memory_order_release);
  }
};

Region Arena::allocate(std::size_t bytes) {
  unmap_retired();
  const std::size_t skew = static_cast<std::size_t>(me_.value % kSkewRanks) * kSkewBytes;
  auto segment = Segment::create(bytes + skew, fmt::format("cohort-region-{}", me_.value), true);  // first: it may throw, no memory left
  auto allocation = std::make_shared<Allocation>();
  allocation->arena = shared_from_this();
  allocation->segment = std::move(segment);
  {
    const std::unique_lock lock(mutex_);
    own_.emplace(allocation->segment.data(), allocation.get());
  }
  auto* const data = allocation->segment.data() + skew;
  return Region{std::move(allocation), data, bytes};
}

std::optional<RegionAddress> Arena::locate(const void* data, std::size_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const std::shared_lock lock(mutex_);
  auto next = own_.upper_bound(at);
  if (next == own_.begin()) return std::nullopt;
  const Segment& segment = std::prev(next)->second->segment;
  const auto offset = static_cast<std::size_t>(at - segment.data());
  if (offset + bytes > segment.size()) return std::nullopt;
  return RegionAddress{segment.name(), offset};
}

std::byte* Arena::map(const RegionAddress& where) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = peers_.find(where.segment.stamp);
    if (found != peers_.end()) return found->second.data() + where.offset;
  }
  unmap_retired();
  std::string why;
  auto segment = Segment::open(where.segment, true, &why);
  if (!segment)
    throw_failure(
        Kind::system,
        "cannot map a peer's memory ({}); is there too little memory or address space (ulimit -v), or was its Region freed during "
        "the operation?",
        why);
  const std::unique_lock lock(mutex_);
  return peers_.emplace(where.segment.stamp, std::move(*segment)).first->second.data() + where.offset;
}

void Arena::unmap_retired() {
  const std::unique_lock lock(mutex_);
  std::erase_if(peers_, [](const auto& entry) { return entry.second.retired().load(std::memory_order_acquire) != 0; });
}

}  // namespace cohort::collective
