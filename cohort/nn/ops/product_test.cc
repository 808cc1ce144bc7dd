#include "cohort/nn/ops/product.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::nn {
namespace {

struct Size {
  std::int64_t rows, in, out;
};

at::Tensor rng(at::IntArrayRef sizes, std::uint64_t seed) { return at::randn(sizes, at::detail::createCPUGenerator(seed)); }

}  // namespace

TEST(Product, IsTheProductForAnyShapeLayoutAndType) {
  const at::NoGradGuard still;
  for (const auto& [rows, in, out] :
       {Size{0, 64, 64}, Size{1, 1, 1}, Size{33, 65, 130}, Size{64, 784, 512}, Size{40, 3, 200}, Size{100, 64, 64}})
    for (const auto type : {at::kFloat, at::kDouble})
      for (const bool turned : {false, true}) {
        const at::Tensor x = rng({rows, in}, 1).to(type), bias = rng({out}, 2).to(type);
        const at::Tensor weight = (turned ? rng({in, out}, 3).t() : rng({out, in}, 3)).to(type);
        const at::Tensor expected = x.to(at::kDouble).mm(weight.to(at::kDouble).t());
        EXPECT_TRUE(at::allclose(product(x, weight, {}).to(at::kDouble), expected, 1e-4, 1e-4)) << rows << " " << in << " " << out;
        EXPECT_TRUE(at::allclose(product(x, weight, bias).to(at::kDouble), expected + bias, 1e-4, 1e-4)) << rows << " " << in << " " << out;
      }
}

TEST(Product, RepeatsItsBitsWhereverTheMemoryLies) {
  const at::NoGradGuard still;
  const at::Tensor x = rng({96, 128}, 1), weight = rng({256, 128}, 2), bias = rng({256}, 3), first = product(x, weight, bias);
  for (std::int64_t skew = 0; skew < 16; ++skew) {
    const auto moved = [skew](const at::Tensor& t) {
      const at::Tensor memory = at::empty({t.numel() + 16});
      at::Tensor copy = memory.slice(0, skew, skew + t.numel()).view(t.sizes());
      return copy.copy_(t);
    };
    EXPECT_TRUE(at::equal(product(moved(x), moved(weight), moved(bias)), first)) << skew;
  }
}

TEST(Product, HasGradientsWhereTheyAreRecorded) {
  const at::Tensor x = rng({64, 64}, 1).requires_grad_(), weight = rng({64, 64}, 2).requires_grad_();
  product(x, weight, {}).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), weight.detach().sum(0).expand({64, 64}), 1e-4, 1e-4));
}

}  // namespace cohort::nn
