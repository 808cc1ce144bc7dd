#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

// One large model serves all tests: drawing 61 million numbers takes a while.
TEST(Alexnet, HasThePublishedParametersAndLearns) {
  const Model model = make_model("alexnet(size=64, dropout=0)", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 61'100'840);
  EXPECT_THAT(names_of(model.named_parameters()),
              testing::IsSupersetOf({"features.0.weight", "features.10.bias", "classifier.1.weight", "classifier.6.bias"}));
  EXPECT_THAT(logits_of(model, 2), testing::ElementsAre(2, 1000));
  expect_learns(model, model.example(2), 0.01);
}

TEST(Alexnet, RefusesImagesTooSmallForItsPools) {
  EXPECT_EQ(failure_of([] { make_model("alexnet(size=32)", kTestSeed); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::nn
