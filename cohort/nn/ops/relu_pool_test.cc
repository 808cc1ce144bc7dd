#include "cohort/nn/ops/relu_pool.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

namespace cohort::nn {
namespace {

at::Tensor by_torch(const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2); }

// The same values, NaN being the same as NaN.
bool same(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 0, 0, /*equal_nan=*/true); }

void expect_torchs(const at::Tensor& values) {
  const at::Tensor x = values.clone().requires_grad_(), wanted = values.clone().requires_grad_();
  const at::Tensor y = relu_pool(x), z = by_torch(wanted);
  ASSERT_EQ(y.sizes(), z.sizes());
  EXPECT_TRUE(same(y, z)) << values.sizes();
  const at::Tensor weights = at::randn(z.sizes(), z.options());
  y.backward(weights);
  z.backward(weights);
  EXPECT_TRUE(same(x.grad(), wanted.grad())) << values.sizes();
}

// Ties, zeros of both signs and numbers that are none among them.
at::Tensor awkward(std::int64_t height, std::int64_t width) {
  at::Tensor x = at::randn({2, 3, height, width}).mul_(2).round_();
  x.masked_fill_(at::rand_like(x) < 0.05, -0.0F);
  return x.masked_fill_(at::rand_like(x) < 0.03, std::numeric_limits<float>::quiet_NaN());
}

TEST(ReluPool, HasTorchsValuesAndGradientsForAnySizes) {
  torch::manual_seed(1);
  for (std::int64_t height = 2; height < 8; ++height)
    for (std::int64_t width = 2; width < 40; ++width) expect_torchs(awkward(height, width));
}

TEST(ReluPool, HasThemWithoutWideInstructionsToo) {
  torch::manual_seed(1);
  const ScalarPoolsGuard plain;
  for (std::int64_t width = 2; width < 20; ++width) expect_torchs(awkward(5, width));
}

TEST(ReluPool, HasThemWithThreadsThatShareTheRows) {
  torch::manual_seed(1);
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  for (const std::int64_t width : {6, 7, 30}) expect_torchs(at::randn({16, 32, 29, width}));
  at::set_num_threads(before);
}

TEST(ReluPool, LeavesOtherTypesAndLayoutsToTorch) {
  expect_torchs(at::randn({2, 3, 6, 6}, at::kDouble));
  expect_torchs(at::randn({2, 3, 6, 6}).to(at::kBFloat16));
  expect_torchs(at::randn({2, 8, 6, 6}).to(at::MemoryFormat::ChannelsLast));
  expect_torchs(at::randn({3, 6, 6}));
  EXPECT_THROW(relu_pool(at::randn({2, 3, 1, 6})), c10::Error);
}

TEST(ReluPool, TakesGradientsThatAreNotContiguous) {
  const at::Tensor x = at::randn({2, 3, 6, 8}).requires_grad_(), wanted = x.detach().clone().requires_grad_();
  const at::Tensor weights = at::randn({2, 3, 4, 3}).transpose(2, 3);
  relu_pool(x).backward(weights);
  by_torch(wanted).backward(weights);
  EXPECT_TRUE(at::equal(x.grad(), wanted.grad()));
}

TEST(ReluPool, GradientsOfGradientsFollow) {
  const at::Tensor values = at::randn({2, 3, 7, 9});
  const auto twice = [&](auto pool) {
    const at::Tensor x = values.clone().requires_grad_();
    const at::Tensor first = torch::autograd::grad({pool(x).pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  EXPECT_TRUE(at::allclose(twice(relu_pool), twice(by_torch)));
}

TEST(ReluPool, AnInfiniteGradientStaysWhereItBelongs) {
  for (const bool slowly : {false, true}) {
    const at::Tensor x = at::ones({1, 1, 2, 2}).requires_grad_();
    const auto given = at::full({1, 1, 1, 1}, std::numeric_limits<float>::infinity());
    const at::Tensor got = torch::autograd::grad({relu_pool(x)}, {x}, {given}, std::nullopt, /*create_graph=*/slowly)[0];
    EXPECT_EQ(got.isinf().sum().item<int>(), 1);
    EXPECT_EQ(got.isnan().sum().item<int>(), 0);
  }
}

TEST(ReluPool, KeepsAByteForEachNumberThatComesOut) {
  const at::Tensor x = at::randn({4, 2, 10, 12});
  relu_pool(x);  // registers the operator
  const auto made = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("cohort::relu_pool", "")
                        .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>();
  const auto [y, places] = made.call(x);
  EXPECT_EQ(places.nbytes(), static_cast<std::size_t>(y.numel()) + 8);
  const auto [shape, kept] = made.call(x.to(at::kMeta));  // for the sizes alone
  EXPECT_EQ(shape.sizes(), y.sizes());
  EXPECT_EQ(kept.sizes(), places.sizes());
}

}  // namespace
}  // namespace cohort::nn
