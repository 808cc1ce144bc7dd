#include <ATen/ops/allclose.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;

TEST(Lstm, GivesLogitsForEveryToken) {
  const Model model = make_model("lstm(vocab=50, embed=12, hidden=16, layers=2, context=9)", kTestSeed);
  const auto layer = [](std::int64_t in, std::int64_t hidden) { return 4 * hidden * (in + hidden + 2); };
  EXPECT_EQ(model.parameter_count(), 50 * 12 + layer(12, 16) + layer(16, 16) + 16 * 50 + 50);
  EXPECT_THAT(logits_of(model, 3), ElementsAre(3, 9, 50));
}

TEST(Lstm, TheFutureDoesNotReachThePast) {
  const Model model = make_model("lstm(vocab=50, context=8)", kTestSeed);
  const at::Tensor ids = model.example(1);
  const at::Tensor before = model.forward(ids);
  ids[0][5] = (ids[0][5].item<std::int64_t>() + 1) % 50;
  const at::Tensor after = model.forward(ids);
  EXPECT_TRUE(at::equal(before.slice(1, 0, 5), after.slice(1, 0, 5)));
  EXPECT_FALSE(at::equal(before.slice(1, 5), after.slice(1, 5)));
}

TEST(Lstm, PredictsBehindTheLastTokenOnly) {
  const Model every = make_model("lstm(vocab=20, context=6)", kTestSeed),
              last = make_model("lstm(vocab=20, context=6, predict=last)", kTestSeed);
  const c10::AutoGradMode no_grad(false);
  const at::Tensor ids = every.example(3), all = every.forward(ids);
  EXPECT_TRUE(at::allclose(last.forward(ids), all.select(1, -1), 1e-5, 1e-6));
}

// Keras' tutorial on headlines has 1,006,437: its LSTM has one bias, torch's two (100 * 4 more).
TEST(Lstm, OfTheHeadlinesHasItsParameters) {
  EXPECT_EQ(make_model("lstm(vocab=8667, embed=10, hidden=100, layers=1, predict=last)", kTestSeed).parameter_count(), 1'006'437 + 400);
}

TEST(Lstm, Learns) { expect_learns("lstm(vocab=20, embed=8, hidden=16, context=6)", 4, 0.1); }
TEST(Lstm, Repeats) { expect_repeats("lstm(vocab=20, embed=8, hidden=16)"); }

}  // namespace
}  // namespace cohort::nn
