// A Pool lends the memory that gradients of one bucket take on their way: regions of the communicator, used again and again, so that peers
// map each of them once. It grows when every region of that size is lent. Owner: Engine. Threads: any. Failure: as allocate().
#pragma once
#include <mutex>
#include <vector>

#include "cohort/base/ledger.h"
#include "cohort/collective/communicator.h"

namespace cohort::sync {

class Pool {
 public:
  explicit Pool(collective::Communicator& comm) : comm_(comm) {}
  collective::Region lend(std::size_t bytes);  // at least so many; what is in it is left over from before
  void give_back(collective::Region region);
  std::size_t lent() const;   // regions on their way now
  std::size_t bytes() const;  // of all regions, lent or not

 private:
  collective::Communicator& comm_;
  mutable std::mutex mutex_;
  std::vector<collective::Region> free_;  // guarded by mutex_, as all below
  std::vector<Ledger::Entry> entries_;
  std::size_t lent_ = 0, bytes_ = 0;
};

}  // namespace cohort::sync
