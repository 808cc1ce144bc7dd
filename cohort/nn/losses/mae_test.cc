#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {

TEST(Mae, IsTheSumOfAbsoluteErrors) {
  const at::Tensor outputs = at::tensor({1.0, 2.0, -3.0}).reshape({3, 1}), targets = at::tensor({1.5, 0.0, 1.0}).reshape({3, 1});
  const ConfiguredLoss mae("mae", true);
  EXPECT_EQ(mae(outputs, targets).value.item<double>(), 0.5 + 2 + 4);
  EXPECT_EQ(mae(outputs, targets).count, 3);
  EXPECT_EQ(mae.measure(), "mae");
  EXPECT_EQ(mae.measure_sum(outputs, targets), 6.5);
}

}  // namespace cohort::nn
