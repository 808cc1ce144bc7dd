#include "cohort/optim/gpu_measure.h"

#include <map>

#include "cohort/cuda/config.h"

namespace cohort::optim {

GpuMeasure::GpuMeasure(Device device)
    : device_(device),
      tally_(cuda::allocate(kTallyWords * sizeof(std::uint64_t), device)),
      found_(cuda::allocate_pinned(kTallyWords * sizeof(std::uint64_t))) {}

GpuMeasure& GpuMeasure::of_this_thread(Device device) {
  thread_local std::map<int, std::unique_ptr<GpuMeasure>> all;
  auto& mine = all[device.index];
  if (!mine) mine = std::make_unique<GpuMeasure>(device);
  return *mine;
}

void GpuMeasure::begin() { cuda::zero(tally_.get(), kTallyWords * sizeof(std::uint64_t), device_); }
void GpuMeasure::end() { cuda::copy(found_.get(), tally_.get(), kTallyWords * sizeof(std::uint64_t), device_); }

void GpuMeasure::read(Measure& sum) const {
  const auto* const words = static_cast<const std::uint64_t*>(found_.get());
  sum.squared.add_limbs({words, ExactSum::kLimbs}, words[ExactSum::kLimbs] > 0);
  sum.finite = sum.finite && words[ExactSum::kLimbs + 1] == 0;
}

void GpuMeasure::await(Measure& sum) const {
  cuda::synchronize(device_);
  read(sum);
}

#if !COHORT_HAS_CUDA
void GpuMeasure::add(const void* /*data*/, std::size_t /*count*/, Dtype /*dtype*/) { cuda::throw_unavailable("measure"); }
#endif

}  // namespace cohort::optim
