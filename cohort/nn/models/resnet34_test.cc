#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

TEST(Resnet34, HasThePublishedParametersAndNames) {
  const Model model = make_model("resnet34", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 21'797'672);
  EXPECT_EQ(model.blocks().size(), 18U);
  EXPECT_THAT(names_of(model.named_parameters()), IsSupersetOf({"conv1.weight", "bn1.bias", "layer1.0.conv1.weight",
                                                                "layer2.0.downsample.0.weight", "layer4.1.bn2.weight", "fc.bias"}));
  EXPECT_THAT(names_of(model.named_buffers()), IsSupersetOf({"bn1.running_mean", "layer3.0.downsample.1.num_batches_tracked"}));
}

TEST(Resnet34, GivesLogits) { EXPECT_THAT(logits_of(make_model("resnet34(classes=7, stem=cifar)", kTestSeed), 2), ElementsAre(2, 7)); }

}  // namespace
}  // namespace cohort::nn
