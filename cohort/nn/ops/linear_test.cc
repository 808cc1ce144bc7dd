#include "cohort/nn/ops/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::nn {
namespace {

struct Pair {
  torch::nn::Linear ours{torch::nn::LinearOptions(7, 5)}, torchs{torch::nn::LinearOptions(7, 5)};
  Pair() {
    const at::NoGradGuard no_grad;
    torchs->weight.copy_(ours->weight);
    torchs->bias.copy_(ours->bias);
    for (auto& layer : {ours, torchs})
      for (auto& p : layer->parameters()) p.mutable_grad() = at::ones_like(p);
  }
  void expect_same() {
    EXPECT_TRUE(at::allclose(ours->weight.grad(), torchs->weight.grad(), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(ours->bias.grad(), torchs->bias.grad(), 1e-5, 1e-6));
  }
};

TEST(Linear, AddsTheGradientOfTorchToWhatIsThere) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{3, 7}, {2, 4, 7}}) {
    Pair pair;
    const at::Tensor x = at::randn(sizes).requires_grad_(), same = x.detach().clone().requires_grad_();
    const at::Tensor y = linear(*pair.ours, x), wanted = pair.torchs->forward(same);
    EXPECT_TRUE(at::allclose(y, wanted, 1e-5, 1e-6));
    y.square().sum().backward();
    wanted.square().sum().backward();
    pair.expect_same();
    EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-5, 1e-6));
  }
}

TEST(Linear, KeepsTheMemoryOfTheGradientAndFiresTheHook) {
  Pair pair;
  const void* const place = pair.ours->weight.grad().data_ptr();
  int fired = 0;
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    explicit Hook(int& n) : count(n) {}
    void operator()(const at::Tensor&) override { ++count; }
    int& count;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(pair.ours->weight, std::make_unique<Hook>(fired));
  for (int step = 0; step < 3; ++step) linear(*pair.ours, at::randn({3, 7})).sum().backward();
  EXPECT_EQ(pair.ours->weight.grad().data_ptr(), place);
  EXPECT_EQ(fired, 3);
}

TEST(Linear, ALayerWithoutABiasIsTorchs) {
  torch::nn::Linear layer(torch::nn::LinearOptions(7, 5).bias(false));
  layer->weight.mutable_grad() = at::ones({5, 7});
  linear(*layer, at::ones({3, 7})).sum().backward();
  EXPECT_TRUE(at::equal(layer->weight.grad(), at::full({5, 7}, 4)));
}

TEST(Linear, UsedTwiceInOneGraphSumsBoth) {
  Pair pair;
  const at::Tensor a = at::randn({3, 7}), b = at::randn({4, 7});
  (linear(*pair.ours, a).square().sum() + linear(*pair.ours, b).square().sum()).backward();
  (pair.torchs->forward(a).square().sum() + pair.torchs->forward(b).square().sum()).backward();
  pair.expect_same();
}

TEST(Linear, GradientsAskedForByNameLeaveTheAccumulatedOnesAlone) {
  Pair pair;
  const at::Tensor x = at::randn({3, 7});
  const auto got = torch::autograd::grad({linear(*pair.ours, x).square().sum()}, {pair.ours->weight});
  const auto wanted = torch::autograd::grad({pair.torchs->forward(x).square().sum()}, {pair.torchs->weight});
  EXPECT_TRUE(at::allclose(got[0], wanted[0], 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(pair.ours->weight.grad(), at::ones({5, 7})));
}

TEST(Linear, AFrozenWeightAndGradientsOfGradientsAreTorchs) {
  Pair frozen;
  frozen.ours->weight.set_requires_grad(false);
  linear(*frozen.ours, at::randn({3, 7})).sum().backward();
  EXPECT_TRUE(at::equal(frozen.ours->weight.grad(), at::ones({5, 7})));
  Pair pair;
  const at::Tensor x = at::randn({3, 7}).requires_grad_(), same = x.detach().clone().requires_grad_();
  const auto twice = [](const at::Tensor& y, const at::Tensor& input) {
    return torch::autograd::grad({y.pow(3).sum()}, {input}, {}, true, true)[0].square().sum();
  };
  twice(linear(*pair.ours, x), x).backward();
  twice(pair.torchs->forward(same), same).backward();
  EXPECT_TRUE(at::allclose(x.grad(), same.grad(), 1e-4, 1e-5));
  pair.expect_same();
}

}  // namespace
}  // namespace cohort::nn
