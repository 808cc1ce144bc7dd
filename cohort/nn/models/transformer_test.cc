#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;

TEST(Transformer, ClassifiesSequencesUpToItsContext) {
  const Model model = make_model("transformer(classes=3, vocab=50, context=16, d=32, heads=4, layers=2)", kTestSeed);
  EXPECT_THAT(logits_of(model, 5), ElementsAre(5, 3));
  EXPECT_THAT(model.forward(model.example(2).slice(1, 0, 7)).sizes().vec(), ElementsAre(2, 3));
  const Error error = failure_of([&] { model.forward(at::zeros({1, 17}, at::kLong)); });
  EXPECT_THAT(error.what, testing::HasSubstr("17 tokens do not fit a context of 16"));
}

TEST(Transformer, EveryTokenSeesEveryOther) {
  const Model model = make_model("transformer(vocab=50, context=6, d=16, heads=2, layers=1)", kTestSeed);
  const at::Tensor ids = model.example(1);
  const auto first_position = [&] { return model.block("h.0").forward(model.block("embed").forward(ids))[0][0].clone(); };
  const at::Tensor before = first_position();
  ids[0][5] = (ids[0][5].item<std::int64_t>() + 1) % 50;
  EXPECT_FALSE(at::equal(before, first_position()));
}

TEST(Transformer, Learns) { expect_learns("transformer(classes=3, vocab=20, context=8, d=16, heads=2, layers=2)", 4, 0.05); }
TEST(Transformer, Repeats) { expect_repeats("transformer(d=16)"); }

}  // namespace
}  // namespace cohort::nn
