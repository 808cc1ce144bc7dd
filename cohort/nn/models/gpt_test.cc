#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;

TEST(Gpt, IsGpt2SmallAtItsSizes) {
  const Model model = make_model("gpt(vocab=50257, context=1024, d=768, heads=12, layers=12, tied=true)", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 124'439'808);
  EXPECT_THAT(names_of(model.named_parameters()), testing::IsSupersetOf({"wte.weight", "wpe.weight", "h.0.ln_1.weight",
                                                                         "h.11.attn.c_attn.bias", "h.5.mlp.c_proj.weight", "ln_f.bias"}));
}

TEST(Gpt, TheFutureDoesNotReachThePast) {
  const Model model = make_model("gpt(vocab=50, context=8, d=32, heads=4, layers=2)", kTestSeed);
  const at::Tensor ids = model.example(1);
  const at::Tensor before = model.forward(ids);
  ASSERT_THAT(before.sizes().vec(), ElementsAre(1, 8, 50));
  ids[0][5] = (ids[0][5].item<std::int64_t>() + 1) % 50;
  const at::Tensor after = model.forward(ids);
  EXPECT_TRUE(at::equal(before.slice(1, 0, 5), after.slice(1, 0, 5)));
  EXPECT_FALSE(at::equal(before.slice(1, 5), after.slice(1, 5)));
}

TEST(Gpt, TiedWeightsAreOneParameterInTwoBlocks) {
  const Model tied = make_model("gpt(vocab=50, d=32)", kTestSeed);
  const Model loose = make_model("gpt(vocab=50, d=32, tied=false)", kTestSeed);
  EXPECT_EQ(loose.parameter_count() - tied.parameter_count(), 50 * 32);
  EXPECT_THAT(names_of(tied.named_parameters(tied.block("embed"))), ElementsAre("wte.weight", "wpe.weight"));
  EXPECT_THAT(names_of(tied.named_parameters(tied.block("head"))), testing::UnorderedElementsAre("wte.weight", "ln_f.weight", "ln_f.bias"));
  EXPECT_THAT(tied.describe(), testing::HasSubstr("tied"));
}

TEST(Gpt, ResidualProjectionsStartSmallerWithDepth) {
  const Model model = make_model("gpt(vocab=50, d=128, layers=8)", kTestSeed);
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!name.ends_with("c_proj.weight") && !name.ends_with("c_fc.weight")) continue;
    const double expected = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;  // 1 / sqrt(2 * 8)
    EXPECT_NEAR(parameter.std().item<double>(), expected, 0.02 * expected) << name;
  }
}

TEST(Gpt, Learns) {
  expect_learns("gpt(vocab=20, context=8, d=16, heads=2, layers=2)", 4, 0.05);
  expect_learns("gpt(vocab=20, context=8, d=16, heads=2, layers=2, tied=false)", 4, 0.05);
}
TEST(Gpt, Repeats) { expect_repeats("gpt(d=16)"); }

TEST(Gpt, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_THAT(failure_of([] { make_model("gpt(d=10, heads=4)", kTestSeed); }).what,
              testing::HasSubstr("d=10 cannot be split into heads=4"));
}

}  // namespace
}  // namespace cohort::nn
