#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

TEST(WideResnet, HasThePublishedParameters) {
  EXPECT_EQ(make_model("wide_resnet(width=10)", kTestSeed).parameter_count(), 17'116'378);
  const Model model = make_model("wide_resnet", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 174'810);
  EXPECT_THAT(logits_of(model, 2), testing::ElementsAre(2, 10));
}

TEST(WideResnet, RefusesADepthThatIsNoSuchNetwork) {
  EXPECT_THAT(failure_of([] { make_model("wide_resnet(depth=18)", kTestSeed); }).what, testing::HasSubstr("6 n + 4"));
}

TEST(WideResnet, Learns) { expect_learns("wide_resnet(depth=10, size=12, norm=group)", 4, 0.01); }
TEST(WideResnet, Repeats) { expect_repeats("wide_resnet(depth=10, size=12)"); }

}  // namespace
}  // namespace cohort::nn
