#include "cohort/nn/tap.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/recompute.h"
#include "cohort/nn/zoo.h"

namespace cohort::nn {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kTapSeed = 7;

// The law that ties a record to its layer: the gradient of the weight is gradients^T inputs, over all records.
void expect_weight_gradients(const Tap& tap, const NamedTensors& parameters, std::size_t layers_seen) {
  std::size_t seen = 0;
  std::string without;
  for (const Tap::Layer& layer : tap.layers()) {
    if (layer.records.empty()) without += layer.weight + " ";
    if (layer.records.empty()) continue;
    ++seen;
    at::Tensor sum, of_bias;
    for (const auto& [in, out, samples] : layer.records) {
      ASSERT_EQ(in.size(1), layer.in) << layer.weight;
      ASSERT_EQ(out.size(1), layer.out) << layer.weight;
      sum = sum.defined() ? sum + out.t().mm(in) : out.t().mm(in);
      of_bias = of_bias.defined() ? of_bias + out.sum(0) : out.sum(0);
    }
    for (const auto& [name, p] : parameters) {
      EXPECT_TRUE(name != layer.weight || at::allclose(sum.view(p.sizes()), p.grad(), 1e-4, 1e-6)) << name;
      EXPECT_TRUE(name != layer.bias || at::allclose(of_bias, p.grad(), 1e-4, 1e-6)) << name;
    }
  }
  EXPECT_EQ(seen, layers_seen) << without;
}

struct Tapped {
  const char* model;
  std::size_t layers;
};
class OfModel : public testing::TestWithParam<Tapped> {};
INSTANTIATE_TEST_SUITE_P(Taps, OfModel,
                         testing::Values(Tapped{"mlp(in=12, hidden=9x8, out=5)", 3}, Tapped{"cnn(in=2, size=8, classes=3)", 4},
                                         Tapped{"gpt(vocab=11, context=5, d=8, heads=2, layers=2, tied=false)", 9}),
                         [](const auto& given) {
                           return std::string(given.param.model).substr(0, std::string(given.param.model).find('('));
                         });

TEST_P(OfModel, ARecordIsWhatTheGradientOfTheWeightIsMadeOf) {
  at::set_num_threads(1);
  for (const bool again : {false, true}) {
    Model model = make_model(GetParam().model, kTapSeed);
    model.train();
    Tap tap(model.named_parameters());
    const BlockWrapper recomputing = [](const Block& block, const at::Tensor& x) { return recompute(block, x); };
    model.wrap_blocks(tap.block_wrapper(again ? recomputing : nullptr));
    for (int pass = 0; pass < 2; ++pass) model.forward(model.example(4, static_cast<std::uint64_t>(pass))).square().mean().backward();
    expect_weight_gradients(tap, model.named_parameters(), GetParam().layers);
    tap.clear();
    expect_weight_gradients(tap, {}, 0);
  }
}

TEST(Tap, PatchesFollowStrideDilationAndPaddingAndModulesOfTorchAreSeenToo) {
  torch::manual_seed(3);
  torch::nn::Conv2d filter(torch::nn::Conv2dOptions(2, 3, {3, 2}).stride({2, 1}).padding({1, 2}).dilation({1, 2}));
  torch::nn::Linear plain(5, 4), bare(torch::nn::LinearOptions(4, 3).bias(false));
  const NamedTensors parameters{{"filter.weight", filter->weight},
                                {"filter.bias", filter->bias},
                                {"plain.weight", plain->weight},
                                {"plain.bias", plain->bias},
                                {"bare.weight", bare->weight}};
  Tap tap(parameters);
  const auto wrapper = tap.block_wrapper();
  const Block convolves{"filter", {filter.ptr()}, [=](const at::Tensor& x) mutable { return filter(x); }};
  const Block linear{"linear", {plain.ptr(), bare.ptr()}, [=](const at::Tensor& x) mutable { return bare(torch::relu(plain(x))); }};
  wrapper(convolves, torch::randn({2, 2, 7, 6})).square().mean().backward();
  wrapper(convolves, torch::randn({2, 7, 6})).square().mean().backward();  // a single image
  wrapper(linear, torch::randn({6, 5})).square().mean().backward();
  wrapper(linear, torch::randn({2, 3, 5})).square().mean().backward();
  expect_weight_gradients(tap, parameters, 3);
}

TEST(Tap, PassesWithoutBackwardOrOutsideItsBlocksLeaveNothing) {
  Model model = make_model("mlp(in=4, hidden=3, out=2)", kTapSeed);
  Tap tap(model.named_parameters());
  model.wrap_blocks(tap.block_wrapper());
  model.forward(model.example(3));
  {
    const at::NoGradGuard no_grad;
    model.forward(model.example(3));
  }
  model.wrap_blocks(nullptr);
  model.forward(model.example(3)).sum().backward();
  for (const auto& layer : tap.layers()) EXPECT_TRUE(layer.records.empty()) << layer.weight;
}

TEST(Tap, ListsEveryMatrixWithItsBiasOnEveryRankAlike) {
  const Tap tap(
      {{"wte.weight", at::zeros({9, 4})}, {"fc.weight", at::zeros({6, 4})}, {"fc.bias", at::zeros({6})}, {"w", at::zeros({2, 3, 5, 5})}});
  ASSERT_EQ(tap.layers().size(), 3u);
  EXPECT_EQ(tap.layers()[0].bias, "");
  EXPECT_EQ(tap.layers()[1].bias, "fc.bias");
  EXPECT_EQ(tap.layers()[2].in, 75);
}

TEST(Tap, AGraphMayOutliveIt) {
  Model model = make_model("mlp(in=4, hidden=3, out=2)", kTapSeed);
  at::Tensor loss;
  {
    Tap tap(model.named_parameters());
    model.wrap_blocks(tap.block_wrapper());
    loss = model.forward(model.example(3)).sum();
    model.wrap_blocks(nullptr);
  }
  loss.backward();
}

TEST(Tap, RefusesWhatHasNoRows) {
  const torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 4, 3).groups(2));
  Tap tap({{"conv.weight", layer->weight}});
  const auto wrapper = tap.block_wrapper();
  const Block block{"conv", {layer.ptr()}, [&](const at::Tensor& x) { return torch::nn::Conv2d(layer)->forward(x); }};
  wrapper(block, at::ones({1, 4, 5, 5})).sum().backward();
  EXPECT_THAT(failure_of([&] { tap.layers(); }).what, HasSubstr("conv.weight"));
  tap.clear();
  EXPECT_EQ(tap.layers().size(), 1u);
}

}  // namespace
}  // namespace cohort::nn
