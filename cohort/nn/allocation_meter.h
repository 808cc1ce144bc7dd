// Counts what torch allocates on the CPU for the thread that made it (and for backward on its behalf): now, and at the highest.
// Activations and temporaries so get a measured number; parameters, gradients and state lie in the communicator's regions, which torch's
// allocator never sees. Owner: the caller, on one thread's stack. Threads: the one that made it; backward's workers inherit it. Failure:
// none.
#pragma once
#include <cstddef>
#include <memory>

namespace cohort::nn {

class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  std::size_t now() const;   // what was allocated since, less what of it was freed
  std::size_t peak() const;  // the highest since the last restart()
  void restart();            // the peak starts again at what is held now

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::nn
