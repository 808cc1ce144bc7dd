#include "cohort/nn/blocks.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Model, RunsEveryBlockThroughTheSeamInOrder) {
  Model model = make_model("cnn", kTestSeed);
  const at::Tensor x = model.example(2);
  const at::Tensor bare = model.forward(x);
  std::vector<std::string> seen;
  model.wrap_blocks([&](const Block& block, const at::Tensor& in) {
    seen.push_back(block.name);
    return block.forward(in);
  });
  EXPECT_TRUE(at::equal(model.forward(x), bare));
  EXPECT_THAT(seen, ElementsAre("stage1", "stage2", "fc", "head"));
  model.wrap_blocks(nullptr);
  EXPECT_TRUE(at::equal(model.forward(x), bare));
  EXPECT_EQ(seen.size(), 4U);
}

TEST(Model, BlocksShareOutTheParameters) {
  for (const Architecture* row : architectures()) {
    if (row->name == "vgg16" || row->name == "alexnet") continue;  // the same code as cnn, half a gigabyte each
    const Model model = make_model(std::string(row->name), kTestSeed);
    std::size_t parts = 0;
    for (const Block& block : model.blocks()) parts += model.named_parameters(block).size();
    const std::size_t tied = row->name == "gpt" ? 1 : 0;
    EXPECT_EQ(parts, model.named_parameters().size() + tied) << row->name;
  }
}

TEST(Model, CountsATensorWithSeveralNamesOnceUnderTheFirst) {
  const auto shared = std::make_shared<torch::nn::Module>("norm"), root = std::make_shared<torch::nn::Module>("root");
  shared->register_parameter("weight", at::zeros({2}));
  shared->register_buffer("mean", at::zeros({2}));
  root->register_module("a", shared);
  root->register_module("b", shared);
  const Model model(root, {.sizes = {2}});
  ASSERT_EQ(model.named_parameters().size(), 1U);
  EXPECT_EQ(model.named_parameters()[0].first, "a.weight");
  ASSERT_EQ(model.named_buffers().size(), 1U);
  EXPECT_EQ(model.named_buffers()[0].first, "a.mean");
}

TEST(Model, DescribesItself) {
  EXPECT_EQ(make_model("cnn", kTestSeed).describe(),
            "block            output                   parameters\n"
            "(input)          1 x 1 x 28 x 28                    \n"
            "stage1           1 x 32 x 14 x 14                320\n"
            "stage2           1 x 64 x 7 x 7               18,496\n"
            "fc               1 x 128                     401,536\n"
            "head             1 x 10                        1,290\n"
            "total                                        421,642\n");
}

TEST(Model, DescribingChangesNothing) {
  Model model = make_model("cnn(norm=batch)", kTestSeed);
  const NamedTensors buffers = model.named_buffers();
  const at::Tensor mean = buffers.front().second.clone();
  model.describe();
  EXPECT_TRUE(model.training());
  EXPECT_TRUE(at::equal(buffers.front().second, mean));
}

TEST(Model, ConvertsWeightsButNotCounters) {
  Model model = make_model("cnn(norm=batch)", kTestSeed);
  model.to(at::kDouble);
  for (const auto& [name, parameter] : model.named_parameters()) EXPECT_EQ(parameter.scalar_type(), at::kDouble) << name;
  for (const auto& [name, buffer] : model.named_buffers()) {
    EXPECT_EQ(buffer.scalar_type(), name.ends_with("num_batches_tracked") ? at::kLong : at::kDouble) << name;
  }
  EXPECT_EQ(model.forward(model.example(2).to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(Model, RefusesTwoBlocksOfOneNameAndUnknownOnes) {
  Model model = make_model("mlp(in=4, hidden=3, out=2)", kTestSeed);
  EXPECT_THAT(failure_of([&] { model.add(model.blocks().front()); }).what, HasSubstr("has a block 'fc1' already"));
  EXPECT_THAT(failure_of([&] { model.add({.name = "empty", .modules = {}, .forward = nullptr}); }).what,
              HasSubstr("'empty' has no forward"));
  EXPECT_THAT(failure_of([&] { model.block("tail"); }).what, HasSubstr("no block 'tail'; its blocks are fc1, head"));
}

TEST(Model, RefusesBlocksWhoseParametersNobodyOwns) {
  Model model = make_model("mlp(in=4, hidden=3, out=2)", kTestSeed);
  const Model other = make_model("mlp(in=4, hidden=3, out=2)", kTestSeed);
  Block foreign = other.blocks().front();
  foreign.name = "foreign";
  model.add(foreign);
  EXPECT_THAT(failure_of([&] { model.named_parameters(model.block("foreign")); }).what, HasSubstr("register its modules with the root"));
}

TEST(Model, TakesABatchOfNothing) {
  for (const char* spec : {"mlp", "cnn(norm=group)"}) {
    const Model model = make_model(spec, kTestSeed);
    EXPECT_THAT(model.forward(model.example(0)).sizes().vec(), ElementsAre(0, 10)) << spec;
  }
}

}  // namespace
}  // namespace cohort::nn
