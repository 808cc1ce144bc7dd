#include "cohort/nn/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <exception>
#include <thread>

#include "cohort/nn/ops/linear.h"

namespace cohort {
namespace {

at::ScalarType type_of_product() { return at::ones({2, 3}).mm(at::ones({3, 2})).scalar_type(); }

TEST(Autocast, ComputesInThePrecisionAskedForAndPutsBackWhatWas) {
  EXPECT_EQ(type_of_product(), at::kFloat);
  {
    const autocast outer(Precision::bf16);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
    {
      const autocast inner(Precision::fp16);
      EXPECT_EQ(type_of_product(), at::kHalf);
      const autocast island(Precision::fp32);
      EXPECT_EQ(type_of_product(), at::kFloat);
    }
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, PutsBackWhatWasWhenForwardThrows) {
  const auto before = at::autocast::get_autocast_dtype(at::kCPU);
  try {
    const autocast half(Precision::fp16);
    at::ones({2, 3}).mm(at::ones({2, 3}));
    FAIL() << "shapes that do not fit were multiplied";
  } catch (const c10::Error&) {
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), before);
}

TEST(Autocast, IsAMatterOfItsThread) {
  const autocast half(Precision::bf16);
  at::ScalarType there = at::kHalf;
  std::thread([&] { there = type_of_product(); }).join();
  EXPECT_EQ(there, at::kFloat);
}

// The 16-bit copy of a weight must not outlive the guard: the next forward would not see the update.
TEST(Autocast, ForgetsItsCopiesOfParametersWhenTheOutermostGuardIsLeft) {
  const at::Tensor w = at::ones({2, 2}).requires_grad_(true), x = at::ones({1, 2});
  const auto forward = [&] {
    const autocast half(Precision::bf16);
    return x.mm(w).sum().item<float>();
  };
  EXPECT_EQ(forward(), 4);
  {
    const at::NoGradGuard no_grad;
    w.fill_(2);
  }
  EXPECT_EQ(forward(), 8);
}

// nn::linear adds weight gradients in place where types allow; here the product is of 16 bits and the gradient of 32.
TEST(Autocast, GradientsOfLinearLayersAreFp32AndTorchs) {
  for (const auto precision : {Precision::bf16, Precision::fp16}) {
    torch::manual_seed(1);
    torch::nn::Linear layer(5, 3);
    const at::Tensor x = torch::randn({4, 5});
    const auto gradients = [&](bool ours, bool inside) {
      layer->weight.mutable_grad() = at::zeros_like(layer->weight);
      layer->bias.mutable_grad() = at::zeros_like(layer->bias);
      at::Tensor loss;
      {
        const autocast half(precision);
        loss = (ours ? nn::linear(*layer, x) : layer->forward(x)).to(at::kFloat).square().sum();
        if (inside) loss.backward();
      }
      if (!inside) loss.backward();
      EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
      return layer->weight.grad().clone();
    };
    EXPECT_TRUE(at::equal(gradients(true, false), gradients(false, false)));
    EXPECT_TRUE(at::equal(gradients(true, true), gradients(false, true)));
    EXPECT_GT(gradients(true, false).abs().max().item<float>(), 0);
  }
}

// What `cohort train` refuses with this reason; should a later torch have it, the refusal can go.
TEST(Autocast, AnLstmComputesInBf16AndThrowsInFp16) {
  torch::nn::LSTM layer(4, 8);
  const at::Tensor x = torch::randn({3, 2, 4});
  {
    const autocast half(Precision::bf16);
    EXPECT_EQ(std::get<0>(layer(x)).scalar_type(), at::kBFloat16);
  }
  const autocast half(Precision::fp16);
  EXPECT_THROW(layer(x), std::exception);  // oneDNN's own
}

}  // namespace
}  // namespace cohort
