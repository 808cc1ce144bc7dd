#include "cohort/nn/own_model.h"

#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::nn {
namespace {

struct TwoLinearsImpl : torch::nn::Module {
  TwoLinearsImpl() : in(register_module("in", torch::nn::Linear(3, 4))), out(register_module("out", torch::nn::Linear(4, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(in(x))); }
  torch::nn::Linear in, out;
};
TORCH_MODULE(TwoLinears);

std::vector<std::string> block_names(const Model& model) {
  std::vector<std::string> names;
  for (const Block& block : model.blocks()) names.push_back(block.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(OwnModel, AModuleIsOneBlockWithItsOwnNames) {
  TwoLinears net;
  const Model model = model_of(net, {.sizes = {3}});
  EXPECT_EQ(block_names(model), Names{"model"});
  EXPECT_EQ(model.named_parameters().front().first, "in.weight");
  EXPECT_EQ(model.named_parameters(model.blocks()[0]).size(), 4u);
  const at::Tensor x = model.example(5);
  EXPECT_TRUE(at::equal(model.forward(x), net->forward(x)));
}

TEST(OwnModel, ASequentialHasABlockForEachChild) {
  torch::nn::Sequential layers({{"first", torch::nn::Linear(3, 4)}, {"act", torch::nn::ReLU()}, {"last", torch::nn::Linear(4, 2)}});
  const Model model = model_of(layers, {.sizes = {3}});
  EXPECT_EQ(block_names(model), (Names{"first", "act", "last"}));
  EXPECT_EQ(model.named_parameters(model.block("last")).front().first, "last.weight");
  EXPECT_TRUE(model.named_parameters(model.block("act")).empty());
  const at::Tensor x = model.example(5);
  EXPECT_TRUE(at::equal(model.forward(x), layers->forward(x)));
}

TEST(OwnModel, AListOfLayersMayHoldFunctions) {
  torch::nn::Linear stem(3, 4);
  TwoLinears rest;
  const Model model =
      model_of({{"stem", stem}, {"cut", [](const at::Tensor& x) { return x.narrow(1, 0, 3).relu(); }}, {"rest", rest}}, {.sizes = {3}});
  EXPECT_EQ(block_names(model), (Names{"stem", "cut", "rest"}));
  EXPECT_EQ(model.named_parameters().back().first, "rest.out.bias");
  const at::Tensor x = model.example(5);
  EXPECT_TRUE(at::equal(model.forward(x), rest->forward(stem->forward(x).narrow(1, 0, 3).relu())));
}

TEST(OwnModel, RefusesNothingAndTwoLayersOfOneName) {
  EXPECT_EQ(failure_of([] { model_of(std::vector<NamedLayer>{}); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { model_of(torch::nn::Sequential()); }).kind, Kind::usage);
  const Error error = failure_of([] { model_of({{"fc", torch::nn::Linear(3, 4)}, {"fc", torch::nn::Linear(4, 3)}}); });
  EXPECT_NE(error.what.find("a block 'fc' already"), std::string::npos);
}

}  // namespace
}  // namespace cohort::nn
