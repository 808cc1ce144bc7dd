#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

TEST(Autoencoder, HasTheParametersOfItsMirroredWidths) {
  const Model model = make_model("autoencoder", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 2'837'314);
  EXPECT_EQ(model.blocks().size(), 8U);
  EXPECT_THAT(logits_of(model, 3), testing::ElementsAre(3, 784));
}

TEST(Autoencoder, GivesValuesBetween0And1UnlessLinear) {
  const c10::AutoGradMode no_grad(false);
  const Model bounded = make_model("autoencoder(in=6, widths=5x2)", kTestSeed);
  const at::Tensor x = bounded.example(50).mul(100);
  EXPECT_GE(bounded.forward(x).min().item<double>(), 0);
  EXPECT_LE(bounded.forward(x).max().item<double>(), 1);
  EXPECT_GT(make_model("autoencoder(in=6, widths=5x2, output=linear)", kTestSeed).forward(x).abs().max().item<double>(), 1);
}

TEST(Autoencoder, RefusesWidthsThatAreNone) {
  EXPECT_EQ(failure_of([] { make_model("autoencoder(widths=5x0)", kTestSeed); }).kind, Kind::usage);
}

TEST(Autoencoder, Learns) { expect_learns("autoencoder(in=12, widths=8x3)", 8, 0.1); }
TEST(Autoencoder, Repeats) { expect_repeats("autoencoder(in=12, widths=8x3)"); }

}  // namespace
}  // namespace cohort::nn
