#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;

TEST(AslCnn, HasTheLayersOfTheTutorial) {
  const Model model = make_model("asl_cnn", kTestSeed);
  const std::int64_t convolutions = (9 * 75 + 75) + (75 * 9 * 50 + 50) + (50 * 9 * 25 + 25);
  EXPECT_EQ(model.parameter_count(), convolutions + 2 * (75 + 50 + 25) + (400 * 512 + 512) + (512 * 24 + 24));
  EXPECT_THAT(logits_of(model, 3), ElementsAre(3, 24));
}

TEST(AslCnn, PoolsRoundUp) {
  EXPECT_THAT(
      make_model("asl_cnn", kTestSeed).describe(),
      testing::AllOf(testing::HasSubstr("1 x 75 x 14 x 14"), testing::HasSubstr("1 x 50 x 7 x 7"), testing::HasSubstr("1 x 25 x 4 x 4")));
}

TEST(AslCnn, DropsOnlyWhileTraining) {
  Model model = make_model("asl_cnn", kTestSeed);
  const at::Tensor x = model.example(4);
  EXPECT_FALSE(at::equal(model.forward(x), model.forward(x)));
  model.train(false);
  EXPECT_TRUE(at::equal(model.forward(x), model.forward(x)));
}

TEST(AslCnn, Learns) { expect_learns("asl_cnn(conv_dropout=0, dense_dropout=0)", 8, 0.01); }
TEST(AslCnn, Repeats) { expect_repeats("asl_cnn(size=8)"); }

}  // namespace
}  // namespace cohort::nn
