#include "cohort/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace cohort::nn {
namespace {

// A value far beyond what a fair draw gives means a wrong formula; these have thousands of samples each.
TEST(Init, DefaultIsUniformWithinOneOverTheRootOfTheFanIn) {
  torch::nn::Sequential net(torch::nn::Linear(100, 400), torch::nn::Conv2d(16, 32, 5), torch::nn::Embedding(300, 20),
                            torch::nn::LSTM(7, 25));
  init_default(*net, ParameterRng(3));
  const auto values = net->named_parameters();
  for (const char* name : {"0.weight", "0.bias"}) EXPECT_NEAR(values[name].abs().max().item<double>(), 0.1, 0.002) << name;
  for (const char* name : {"1.weight"}) EXPECT_NEAR(values[name].abs().max().item<double>(), 0.05, 0.001) << name;
  EXPECT_NEAR(values["2.weight"].std().item<double>(), 1.0, 0.05);
  EXPECT_NEAR(values["3.weight_hh_l0"].abs().max().item<double>(), 0.2, 0.002);
}

TEST(Init, HeLooksAtTheFanOut) {
  torch::nn::Sequential net(torch::nn::Conv2d(16, 32, 5), torch::nn::Linear(100, 400));
  init_he(*net, ParameterRng(3), 0.01);
  const auto values = net->named_parameters();
  EXPECT_NEAR(values["0.weight"].std().item<double>(), std::sqrt(2.0 / (32 * 25)), 0.002);
  EXPECT_EQ(values["0.bias"].abs().max().item<double>(), 0);
  EXPECT_NEAR(values["1.weight"].std().item<double>(), 0.01, 0.0002);
}

TEST(Init, ANameAndASeedAreAllThatCounts) {
  const at::Tensor a = at::empty({50}), b = at::empty({50}), c = at::empty({50});
  ParameterRng(1).normal("x", a, 1);
  ParameterRng(1).normal("y", b, 1);
  ParameterRng(1).normal("x", c, 1);
  EXPECT_TRUE(at::equal(a, c));
  EXPECT_FALSE(at::equal(a, b));
  ParameterRng(2).normal("x", c, 1);
  EXPECT_FALSE(at::equal(a, c));
}

}  // namespace
}  // namespace cohort::nn
