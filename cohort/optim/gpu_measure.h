// Measure (measure.h) of memory on a GPU, with the same bits: within a block of 256 elements squares are added in the processor's order,
// and the sums of blocks without rounding, by atomic additions to an ExactSum's limbs, whose order does not matter.
//   GpuMeasure measure(device);
//   measure.begin();
//   measure.add(data, count, Dtype::f32);  // enqueued, as all of it is: on the calling thread's stream (cuda/runtime.h)
//   measure.end();                         // what was found is on its way to pinned memory
//   cuda::synchronize(device);             // once, for all that is under way
//   measure.read(found);
// Owner: the caller. Threads: one at a time. Failure: as cuda/runtime.h.
#pragma once
#include <array>

#include "cohort/cuda/runtime.h"
#include "cohort/optim/measure.h"

namespace cohort::optim {

// On the GPU: the limbs of the sum, how many blocks were not finite, how many elements.
inline constexpr std::size_t kTallyWords = ExactSum::kLimbs + 2;

class GpuMeasure {
 public:
  explicit GpuMeasure(Device device);
  static GpuMeasure& of_this_thread(Device device);  // kept for measuring and waiting at once

  void begin();
  void add(const void* data, std::size_t count, Dtype dtype);
  void end();
  void read(Measure& sum) const;  // adds to it; after the stream has come to end()
  void await(Measure& sum) const;
  Device device() const { return device_; }
  unsigned long long* tally() const { return static_cast<unsigned long long*>(tally_.get()); }

 private:
  const Device device_;
  const std::shared_ptr<void> tally_, found_;  // on the GPU; pinned
};

}  // namespace cohort::optim
