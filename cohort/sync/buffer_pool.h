// A BufferPool has the memory that gradients of one bucket take while they are reduced: regions of the communicator, used again and again,
// so that peers map each of them once. It grows when every region of that size is in use. Owner: Engine. Threads: any. Failure: as
// allocate().
#pragma once
#include <mutex>
#include <vector>

#include "cohort/base/ledger.h"
#include "cohort/collective/communicator.h"

namespace cohort::sync {

class BufferPool {
 public:
  explicit BufferPool(collective::Communicator& comm, Device device = Device::cpu) : comm_(comm), device_(device) {}
  collective::Region acquire(std::size_t bytes);  // at least so many; what is in it is left over from before
  void release(collective::Region region);
  std::size_t in_use() const;  // regions acquired and not released
  std::size_t bytes() const;   // of all regions, in use or free

 private:
  collective::Communicator& comm_;
  const Device device_;
  mutable std::mutex mutex_;
  std::vector<collective::Region> free_;  // guarded by mutex_, as all below
  std::vector<Ledger::Entry> entries_;
  std::size_t in_use_ = 0, bytes_ = 0;
};

}  // namespace cohort::sync
