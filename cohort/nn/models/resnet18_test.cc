#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::IsSupersetOf;

TEST(Resnet18, HasThePublishedParametersAndNames) {
  const Model model = make_model("resnet18", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 11'689'512);
  EXPECT_EQ(model.blocks().size(), 10U);
  EXPECT_THAT(names_of(model.named_parameters()), IsSupersetOf({"conv1.weight", "bn1.bias", "layer1.0.conv1.weight",
                                                                "layer2.0.downsample.0.weight", "layer4.1.bn2.weight", "fc.bias"}));
  EXPECT_THAT(names_of(model.named_buffers()), IsSupersetOf({"bn1.running_mean", "layer3.0.downsample.1.num_batches_tracked"}));
}

TEST(Resnet18, CifarStemKeepsSmallImages) {
  const Model model = make_model("resnet18(classes=10, stem=cifar)", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 11'173'962);
  const std::string table = model.describe();
  EXPECT_THAT(table, testing::HasSubstr("1 x 64 x 32 x 32"));
  EXPECT_THAT(table, testing::HasSubstr("1 x 512 x 4 x 4"));
}

TEST(Resnet18, ImagenetStemQuartersLargeOnes) {
  const Model model = make_model("resnet18", kTestSeed);
  EXPECT_THAT(model.describe(), testing::HasSubstr("1 x 64 x 56 x 56"));
}

TEST(Resnet18, ZeroGammaStartsEveryBlockAsItsShortcut) {
  const Model model = make_model("resnet18(stem=cifar, zero_gamma=true)", kTestSeed);
  const at::Tensor x = model.block("stem").forward(model.example(2));
  EXPECT_TRUE(at::equal(model.block("layer1.0").forward(x), x));
}

TEST(Resnet18, Learns) {
  for (const char* spec : {"resnet18(classes=10, stem=cifar)", "resnet18(classes=10, stem=cifar, norm=group, in=1)"}) {
    const Model model = make_model(spec, kTestSeed);
    expect_learns(model, model.example(4).slice(2, 0, 16).slice(3, 0, 16), 0.001);  // a quarter of the image, to be quick
  }
}
TEST(Resnet18, Repeats) { expect_repeats("resnet18(classes=10)"); }

}  // namespace
}  // namespace cohort::nn
