#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>

#include "cohort/nn/build.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

const std::string kTiny = "bert(vocab=50, context=12, d=16, heads=2, layers=2, dropout=0";

at::Tensor ids_of(std::initializer_list<std::int64_t> ids) { return at::tensor(at::IntArrayRef(ids), at::kLong).unsqueeze(0); }

TEST(Bert, HasThePublishedParametersAndNames) {
  const Model model = build_model("bert");
  EXPECT_EQ(model.parameter_count(), 109'482'240 + 2 * 768 + 2);  // with the last layer of two classes
  EXPECT_THAT(names_of(model.named_parameters()),
              IsSupersetOf({"bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm.bias",
                            "bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.11.attention.output.LayerNorm.weight",
                            "bert.encoder.layer.3.intermediate.dense.bias", "bert.encoder.layer.3.output.dense.weight",
                            "bert.pooler.dense.weight", "classifier.bias"}));
}

TEST(Bert, GivesWhatEachTaskNeeds) {
  EXPECT_THAT(logits_of(make_model(kTiny + ", classes=5)", kTestSeed), 3), ElementsAre(3, 5));
  EXPECT_THAT(logits_of(make_model(kTiny + ", classes=5, task=tag)", kTestSeed), 3), ElementsAre(3, 12, 5));
  EXPECT_THAT(logits_of(make_model(kTiny + ", task=answer)", kTestSeed), 3), ElementsAre(3, 2, 12));
}

TEST(Bert, PaddingChangesNothing) {
  const c10::AutoGradMode no_grad(false);
  Model model = make_model(kTiny + ")", kTestSeed);
  model.train(false);
  const at::Tensor bare = model.forward(ids_of({2, 7, 8, 3, 9, 3})), padded = model.forward(ids_of({2, 7, 8, 3, 9, 3, 0, 0, 0}));
  EXPECT_TRUE(at::allclose(bare, padded, 1e-5, 1e-6));
}

TEST(Bert, TheSecondTextBeginsBehindTheFirstSeparator) {
  const c10::AutoGradMode no_grad(false);
  Model model = make_model(kTiny + ", task=answer)", kTestSeed);
  model.train(false);
  const at::Tensor logits = model.forward(ids_of({2, 7, 3, 9, 8, 3, 0}))[0][0];
  for (const std::int64_t outside : {0, 1, 2, 6}) EXPECT_EQ(logits[outside].item<double>(), -1e4) << outside;
  for (const std::int64_t inside : {3, 4, 5}) EXPECT_GT(logits[inside].item<double>(), -100) << inside;
}

TEST(Bert, Learns) { expect_learns(kTiny + ")", 4, 0.05); }
TEST(Bert, Repeats) { expect_repeats(kTiny + ")"); }

}  // namespace
}  // namespace cohort::nn
