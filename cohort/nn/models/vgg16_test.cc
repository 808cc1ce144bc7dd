#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

// One large model serves all tests: drawing 138 million numbers takes a while.
TEST(Vgg16, HasThePublishedParametersAndReachesThemAll) {
  const Model model = make_model("vgg16(size=32, dropout=0)", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 138'357'544);
  EXPECT_EQ(model.blocks().size(), 17U);
  EXPECT_THAT(names_of(model.named_parameters()),
              testing::IsSupersetOf({"features.0.weight", "features.28.bias", "classifier.0.weight", "classifier.6.bias"}));
  expect_learns(model, model.example(1), 0.01);
}

}  // namespace
}  // namespace cohort::nn
