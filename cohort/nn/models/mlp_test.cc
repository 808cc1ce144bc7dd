#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mlp, FlattensAnyImageAndHasTheParametersOfItsWidths) {
  Model model = make_model("mlp(in=784, hidden=512x512, out=10)", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
  EXPECT_THAT(logits_of(model, 3), ElementsAre(3, 10));
  EXPECT_THAT(model.forward(model.example(2).view({2, 1, 28, 28})).sizes().vec(), ElementsAre(2, 10));
}

TEST(Mlp, MayHaveNoHiddenLayer) {
  const Model model = make_model("mlp(in=6, hidden=none, out=4)", kTestSeed);
  EXPECT_THAT(names_of(model.named_parameters()), ElementsAre("head.weight", "head.bias"));
}

TEST(Mlp, Learns) { expect_learns("mlp(in=20, hidden=32x16x8, out=5)", 8, 0.01); }
TEST(Mlp, Repeats) { expect_repeats("mlp(in=20, hidden=8)"); }

TEST(Mlp, RefusesWidthsItCannotRead) {
  for (const char* hidden : {"512,512", "0", "x", "12x", "99999999", "wide"}) {
    const Error error = failure_of([&] { make_model(std::string("mlp(hidden=\"") + hidden + "\")", kTestSeed); });
    EXPECT_EQ(error.kind, Kind::usage) << hidden;
    EXPECT_THAT(error.what, HasSubstr("is not a list of widths"));
  }
}

}  // namespace
}  // namespace cohort::nn
