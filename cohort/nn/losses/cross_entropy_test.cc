#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/nn/loss.h"

namespace cohort::nn {

TEST(CrossEntropy, OfEqualLogitsIsTheLogOfTheClasses) {
  const at::Tensor logits = at::full({3, 8}, 2.0), labels = at::tensor({0L, 3L, 7L});
  const ConfiguredLoss loss("cross_entropy", false);
  EXPECT_NEAR(loss(logits, labels).value.item<double>(), 3 * std::log(8.0), 1e-6);
  EXPECT_EQ(loss.measure(), "accuracy");
  EXPECT_EQ(loss.measure_sum(logits, at::tensor({0L, 0L, 1L})), 2) << "the first of equal ones is the answer";
}

}  // namespace cohort::nn
