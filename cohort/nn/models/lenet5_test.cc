#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

TEST(Lenet5, HasThePublishedParameters) {
  const Model model = make_model("lenet5", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 61'706);
  EXPECT_THAT(logits_of(model, 2), testing::ElementsAre(2, 10));
  EXPECT_THAT(logits_of(make_model("lenet5(size=32)", kTestSeed), 2), testing::ElementsAre(2, 10));
}

TEST(Lenet5, RefusesOtherSizes) {
  EXPECT_EQ(failure_of([] { make_model("lenet5(size=30)", kTestSeed); }).kind, Kind::usage);
}
TEST(Lenet5, Learns) { expect_learns("lenet5", 8, 0.01); }
TEST(Lenet5, Repeats) { expect_repeats("lenet5"); }

}  // namespace
}  // namespace cohort::nn
