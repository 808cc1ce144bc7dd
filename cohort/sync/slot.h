// A Slot is memory, on one device, for one role of a bucket: all of its elements or a run of them, counted in the books of this process
// (base/ledger.h). Owner: Bucket. Threads: as the bucket's. Failure: none.
#pragma once
#include "cohort/base/ledger.h"
#include "cohort/collective/communicator.h"

namespace cohort::sync {

using Range = ElementRange;

struct Slot {
  collective::Region region{};
  std::size_t origin = 0;  // which element of the bucket its first one is
  Ledger::Entry entry{};
  Device device = Device::cpu;

  bool here() const { return region.data() != nullptr; }
  std::byte* at(std::size_t element, Dtype type) const {
    return static_cast<std::byte*>(region.data()) + (element - origin) * size_of(type);
  }
  Piece piece(const Range& range, Dtype type) const { return {at(range.first, type), range.count, type, device}; }
  // The same memory, which lives as long as this lives.
  collective::Region part(const Range& range, Dtype type) const {
    return collective::Region{std::make_shared<collective::Region>(region), at(range.first, type), range.count * size_of(type)};
  }
};

}  // namespace cohort::sync
