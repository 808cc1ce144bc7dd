#include "cohort/nn/own_dataset.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>

#include "cohort/base/failure_of.h"
#include "cohort/nn/batch.h"

namespace cohort::nn {
namespace {

using testing::HasSubstr;
using Sizes = at::IntArrayRef;

// size() and get() only; `bad` gives what `spoil` makes of a sample.
template <class Label>
struct Own {
  std::function<at::Tensor(std::int64_t)> input;
  std::function<Label(std::int64_t)> label;
  std::size_t size() const { return 6; }
  std::pair<at::Tensor, Label> get(std::size_t i) const {
    return {input(static_cast<std::int64_t>(i)), label(static_cast<std::int64_t>(i))};
  }
};

Tensors batch_of(const data::Dataset& set) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(set.size()));
  std::iota(all.begin(), all.end(), 0);
  Tensors t;
  fetch(set, {}, all, t.inputs, t.labels);
  return t;
}

at::Tensor ramp(std::int64_t i) { return torch::arange(4).to(torch::kDouble).reshape({2, 2}) + static_cast<double>(i); }

TEST(OwnDataset, FloatsAndClassesReachTheBatchAsTheyAre) {
  const auto set = dataset_of(Own<int>{ramp, [](std::int64_t i) { return static_cast<int>(i % 3); }}, {.classes = 3});
  EXPECT_EQ(set->form().input, data::Input::floats);
  const Tensors t = batch_of(*set);
  EXPECT_EQ(t.inputs.sizes(), (Sizes{6, 2, 2}));
  EXPECT_EQ(t.inputs[5][1][1].item<float>(), 8);
  EXPECT_TRUE(at::equal(t.labels, torch::tensor({0, 1, 2, 0, 1, 2}, torch::kLong)));
}

TEST(OwnDataset, FloatLabelsAreTargets) {
  const auto set = dataset_of(Own<at::Tensor>{ramp, [](std::int64_t i) { return torch::tensor({0.5, 2.0}) * i; }});
  EXPECT_EQ(set->form().targets, 2);
  EXPECT_TRUE(at::equal(batch_of(*set).labels[3], torch::tensor({1.5F, 6.0F})));
}

TEST(OwnDataset, PicturesAreScaledAndTokensAreWide) {
  const auto pictures = dataset_of(Own<int>{[](std::int64_t) {
                                              return torch::full({3, 2, 2}, 255, torch::kByte);
                                            },
                                            [](std::int64_t) { return 0; }});
  EXPECT_EQ(batch_of(*pictures).inputs.max().item<float>(), 1);
  const auto tokens = dataset_of(Own<at::Tensor>{[](std::int64_t i) {
                                                   return torch::tensor({i, 50000 + i}, torch::kLong);
                                                 },
                                                 [](std::int64_t i) {
                                                   return torch::tensor({50000 + i, i}, torch::kLong);
                                                 }},
                                 {.vocabulary = 50257});
  EXPECT_TRUE(tokens->form().next_tokens);
  EXPECT_EQ(batch_of(*tokens).inputs[5][1].item<std::int64_t>(), 50005);
  EXPECT_EQ(batch_of(*tokens).labels[5][0].item<std::int64_t>(), 50005);
  EXPECT_EQ(tokens->fingerprint(), tokens->fingerprint());
}

TEST(OwnDataset, TakesTorchsDatasets) {
  struct Torch : torch::data::datasets::Dataset<Torch> {
    torch::data::Example<> get(std::size_t i) override { return {ramp(static_cast<std::int64_t>(i)), torch::tensor(1, torch::kLong)}; }
    std::optional<std::size_t> size() const override { return 4; }
  };
  const auto set = dataset_of(Torch());
  EXPECT_EQ(set->size(), 4);
  EXPECT_EQ(batch_of(*set).labels.sum().item<std::int64_t>(), 4);
}

TEST(OwnDataset, NamesTheSampleThatIsNotLikeTheFirst) {
  const auto zero = [](std::int64_t) { return 0; };
  const auto complaint = [](const std::shared_ptr<const data::Dataset>& set) {
    const Error error = failure_of([&] { batch_of(*set); });
    EXPECT_EQ(error.kind, Kind::corrupt);
    return error.what;
  };
  const auto longer = [](std::int64_t i) { return torch::zeros({i == 4 ? 3 : 2}); };
  EXPECT_THAT(complaint(dataset_of(Own<int>{longer, zero}, {.name = "waves"})),
              HasSubstr("sample 4 (waves, sample 4): its input is [3] Float, that of sample 0 is [2] of floating point"));
  EXPECT_THAT(complaint(dataset_of(Own<int>{ramp, [](std::int64_t i) { return i == 5 ? 7 : 0; }}, {.classes = 3})),
              HasSubstr("sample 5 (own, sample 5): it has label 7, expected 0 to 2"));
  const auto throws = [](std::int64_t i) { return i == 2 ? throw std::runtime_error("no such file") : ramp(i); };
  EXPECT_THAT(complaint(dataset_of(Own<int>{throws, zero})), HasSubstr("sample 2 (own, sample 2): get(2) failed: no such file"));
  const auto outside = [](std::int64_t i) { return torch::full({3}, i == 1 ? 9 : 1, torch::kLong); };
  EXPECT_THAT(complaint(dataset_of(Own<int>{outside, zero}, {.vocabulary = 5})), HasSubstr("it has token 9, expected 0 to 4"));
}

TEST(OwnDataset, RefusesAFirstSampleThatIsNothingItKnows) {
  const auto zero = [](std::int64_t) { return 0; };
  EXPECT_THAT(failure_of([&] {
                dataset_of(Own<int>{[](std::int64_t) { return torch::zeros({3}, torch::kLong); }, zero});
              }).what,
              HasSubstr("sample 0 is [3] Long: it must be uint8"));
  EXPECT_THAT(failure_of([&] { dataset_of(Own<int>{[](std::int64_t) { return at::Tensor(); }, zero}); }).what, HasSubstr("undefined"));
}

}  // namespace
}  // namespace cohort::nn
