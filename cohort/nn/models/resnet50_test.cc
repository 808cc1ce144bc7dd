#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::IsSupersetOf;

TEST(Resnet50, HasThePublishedParametersAndNames) {
  const Model model = make_model("resnet50", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 25'557'032);
  EXPECT_EQ(model.blocks().size(), 18U);
  EXPECT_THAT(names_of(model.named_parameters()), IsSupersetOf({"conv1.weight", "bn1.bias", "layer1.0.conv1.weight",
                                                                "layer2.0.downsample.0.weight", "layer4.1.bn2.weight", "fc.bias"}));
  EXPECT_THAT(names_of(model.named_buffers()), IsSupersetOf({"bn1.running_mean", "layer3.0.downsample.1.num_batches_tracked"}));
}

TEST(Resnet50, BottlenecksCarryTheStrideInTheirMiddle) {
  const Model model = make_model("resnet50(classes=7)", kTestSeed);
  const std::string table = model.describe();
  EXPECT_THAT(table, testing::HasSubstr("1 x 256 x 56 x 56"));
  EXPECT_THAT(table, testing::HasSubstr("1 x 2048 x 7 x 7"));
}

TEST(Resnet50, Learns) { expect_learns("resnet50(classes=10, stem=cifar, norm=group)", 2, 0.001); }

}  // namespace
}  // namespace cohort::nn
