#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

TEST(Resnet101, HasThePublishedParameters) { EXPECT_EQ(make_model("resnet101", kTestSeed).parameter_count(), 44'549'160); }

}  // namespace
}  // namespace cohort::nn
