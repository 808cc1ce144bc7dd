// The Arena: memory this process shares with its peers (Regions), and the peers' memory mapped here.
// Owner: shared by all communicators over one PeerLinks and by every Region. Threads: any. Failure: Kind::system when memory cannot be had
// or mapped.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

#include "cohort/base/segment.h"
#include "cohort/collective/communicator.h"

namespace cohort::collective {

// Where a buffer lies, for a peer to map it.
struct RegionAddress {
  SegmentName segment;
  std::uint64_t offset = 0;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  explicit Arena(Rank me) : me_(me) {}
  Region allocate(std::size_t bytes);
  // nullopt when the bytes are not inside one Region of this process.
  std::optional<RegionAddress> locate(const void* data, std::size_t bytes) const;
  // The bytes of a peer (or of ourselves), mapped here; opened at the first use.
  std::byte* map(const RegionAddress& where);
  // Unmaps peers' memory whose owner has freed it.
  void unmap_retired();

 private:
  struct Allocation;
  const Rank me_;
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Allocation*> own_;            // by first byte
  std::map<std::array<std::uint64_t, 2>, Segment> peers_;  // by stamp
};

}  // namespace cohort::collective
