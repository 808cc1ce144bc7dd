#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

TEST(Resnet152, HasThePublishedParameters) { EXPECT_EQ(make_model("resnet152", kTestSeed).parameter_count(), 60'192'808); }

}  // namespace
}  // namespace cohort::nn
