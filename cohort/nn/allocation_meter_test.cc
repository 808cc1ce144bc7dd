#include "cohort/nn/allocation_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace cohort::nn {
namespace {

constexpr std::int64_t kFloats = 1 << 16;
constexpr std::size_t kBytes = kFloats * sizeof(float);

TEST(AllocationMeter, CountsWhatTorchHoldsAndTheHighestOfIt) {
  AllocationMeter meter;
  const at::Tensor kept = at::zeros({kFloats});
  { const at::Tensor gone = at::zeros({kFloats}); }
  EXPECT_EQ(meter.now(), kBytes);
  EXPECT_EQ(meter.peak(), 2 * kBytes);
  meter.restart();
  EXPECT_EQ(meter.peak(), kBytes);
}

TEST(AllocationMeter, SeesWhatForwardKeepsForBackward) {
  at::Tensor x = at::ones({kFloats}).requires_grad_(true);
  AllocationMeter meter;
  {
    const at::Tensor y = x.exp();  // keeps its result, and it is the result
    const at::Tensor z = y.sin();  // keeps y
    EXPECT_EQ(meter.now(), 2 * kBytes);
    z.sum().backward();
  }
  EXPECT_EQ(meter.now(), kBytes);  // x.grad
  EXPECT_GE(meter.peak(), 3 * kBytes);
}

TEST(AllocationMeter, ForgetsWhatWasThereBefore) {
  at::Tensor before = at::zeros({kFloats});
  const AllocationMeter meter;
  before.reset();
  EXPECT_EQ(meter.now(), 0U);
}

}  // namespace
}  // namespace cohort::nn
