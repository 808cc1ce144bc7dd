#include "cohort/nn/meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace cohort::nn {
namespace {

constexpr std::int64_t kFloats = 1 << 16;
constexpr std::size_t kBytes = kFloats * sizeof(float);

TEST(Meter, CountsWhatTorchHoldsAndTheHighestOfIt) {
  Meter meter;
  const at::Tensor kept = at::zeros({kFloats});
  { const at::Tensor gone = at::zeros({kFloats}); }
  EXPECT_EQ(meter.now(), kBytes);
  EXPECT_EQ(meter.peak(), 2 * kBytes);
  meter.restart();
  EXPECT_EQ(meter.peak(), kBytes);
}

TEST(Meter, SeesWhatForwardKeepsForBackward) {
  at::Tensor x = at::ones({kFloats}).requires_grad_(true);
  Meter meter;
  {
    const at::Tensor y = x.exp();  // keeps its result, and it is the result
    const at::Tensor z = y.sin();  // keeps y
    EXPECT_EQ(meter.now(), 2 * kBytes);
    z.sum().backward();
  }
  EXPECT_EQ(meter.now(), kBytes);  // x.grad
  EXPECT_GE(meter.peak(), 3 * kBytes);
}

TEST(Meter, ForgetsWhatWasThereBefore) {
  at::Tensor before = at::zeros({kFloats});
  const Meter meter;
  before.reset();
  EXPECT_EQ(meter.now(), 0U);
}

}  // namespace
}  // namespace cohort::nn
