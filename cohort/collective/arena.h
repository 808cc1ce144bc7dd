// The Arena: memory this process lends to its peers (Regions), and the peers' memory mapped here.
// Owner: shared by all communicators of one mesh and by every Region. Threads: any. Failure: Kind::system when memory cannot be had or
// mapped.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

#include "cohort/base/segment.h"
#include "cohort/collective/communicator.h"

namespace cohort::collective {

// Where a buffer lies, in words a peer can follow.
struct Where {
  SegmentName segment;
  std::uint64_t offset = 0;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  explicit Arena(Rank me) : me_(me) {}
  Region allocate(std::size_t bytes);
  // nullopt when the bytes are not inside one Region of this process.
  std::optional<Where> locate(const void* data, std::size_t bytes) const;
  // The bytes of a peer (or of ourselves), mapped here; opened at the first use.
  std::byte* reach(const Where& where);
  // Lets go of peers' memory whose owner let go.
  void sweep();

 private:
  struct Holding;
  const Rank me_;
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Holding*> own_;               // by first byte
  std::map<std::array<std::uint64_t, 2>, Segment> peers_;  // by stamp
};

}  // namespace cohort::collective
