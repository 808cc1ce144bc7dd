// Memory that the ranks of one host reduce in place: one Arena for the whole process, shared by the communicators of all its process
// groups, and a pool that keeps what was freed for the next tensor of that size (a fresh shared segment costs a page fault for each page).
// What goes through it: what torch asks a process group to allocate (DDP's buckets), shared_tensor(), and, behind a switch, every large CPU
// tensor (serve_large_tensors).
// Owner: the process; never destroyed, tensors may outlive everything. Threads: any. Failure: Kind::system when there is no memory.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/collective/shared/arena.h"

namespace cohort::python {

class SharedMemoryPool {
 public:
  // The first caller's rank offsets the buffers of this process so that ranks do not share cache sets.
  static SharedMemoryPool& of(Rank me);
  static SharedMemoryPool& instance() { return of(Rank{0}); }

  const std::shared_ptr<collective::Arena>& arena() const { return arena_; }
  at::DataPtr allocate(std::size_t bytes);
  at::Tensor tensor(at::IntArrayRef sizes, at::ScalarType type);
  bool release(void* data) noexcept;  // false: not from here

  struct Stats {
    std::size_t in_use = 0, cached = 0, peak = 0;  // bytes
  };
  Stats stats() const;

 private:
  explicit SharedMemoryPool(Rank me) : arena_(std::make_shared<collective::Arena>(me)) {}
  static std::size_t size_class(std::size_t bytes);

  const std::shared_ptr<collective::Arena> arena_;
  mutable std::mutex mutex_;
  // ---- guarded by mutex_
  std::map<void*, collective::Region> used_;
  std::map<std::size_t, std::vector<collective::Region>> free_;  // by size
  Stats stats_;
};

// Every CPU tensor of at least `threshold` bytes comes from the pool from now on; 0: torch's own allocator again. Tensors that exist stay
// where they are. docs/python.md says what it costs.
void serve_large_tensors(std::size_t threshold);

}  // namespace cohort::python
