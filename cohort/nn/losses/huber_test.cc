#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {

TEST(Huber, IsSquaredBelowDeltaAndLinearAbove) {
  const at::Tensor outputs = at::tensor({0.5, 10.0}).reshape({2, 1}), targets = at::tensor({0.0, 0.0}).reshape({2, 1});
  EXPECT_DOUBLE_EQ(ConfiguredLoss("huber", true)(outputs, targets).value.item<double>(), 0.125 + 1 * (10 - 0.5));
  EXPECT_DOUBLE_EQ(ConfiguredLoss("huber(delta=4)", true)(outputs, targets).value.item<double>(), 0.125 + 4 * (10 - 2));
  EXPECT_EQ(failure_of([] { ConfiguredLoss("huber(delta=0)", true); }).kind, Kind::usage);
}

}  // namespace cohort::nn
