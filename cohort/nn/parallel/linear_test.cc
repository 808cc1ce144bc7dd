#include "cohort/nn/parallel/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/models/testing.h"
#include "cohort/nn/parallel/region.h"

namespace cohort::nn {
namespace {

using collective::Communicator;
using collective::run_ranks;

// What one pass of a pair gives: outputs, the input's gradient, and every parameter's, put together from all ranks.
struct Pass {
  at::Tensor y, dx;
  std::map<std::string, at::Tensor> gradients;
};

Pass pass_of(Model& model, at::ScalarType type) {
  model.to(type);
  const at::Tensor x = model.example(6).to(type).requires_grad_(true);
  Pass pass;
  pass.y = model.forward(x);
  (pass.y * at::arange(pass.y.numel(), pass.y.options()).view_as(pass.y)).sum().backward();  // every output has its own weight
  pass.dx = x.grad();
  for (const auto& [name, p] : model.named_parameters()) pass.gradients[name] = p.grad();
  return pass;
}

void expect_pair_is_one_rank(int ranks, at::ScalarType type, double tolerance) {
  at::set_num_threads(1);
  Model alone = make_model("tp_mlp(in=12, hidden=24, out=5)", kTestSeed);
  const Pass one = pass_of(alone, type);
  const auto near = [&](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
    EXPECT_LE((a - b).abs().max().item<double>(), tolerance * b.abs().max().item<double>()) << what << " on " << ranks << " ranks";
  };
  std::mutex mutex;
  std::vector<at::Tensor> outputs;
  run_ranks(ranks, [&](Communicator& comm) {
    Model model = make_model("tp_mlp(in=12, hidden=24, out=5)", kTestSeed);
    const auto specs = shard_linears(model.root(), comm);
    const Pass mine = pass_of(model, type);
    const std::lock_guard lock(mutex);
    near(mine.y, one.y, "y");
    near(mine.dx, one.dx, "dx");
    for (const auto& [name, gradient] : mine.gradients) {
      at::Tensor expected = one.gradients.at(name);
      if (const auto spec = specs.find(name); spec != specs.end())
        for (std::size_t d = 0; d < spec->second.whole.size(); ++d)
          expected = expected.narrow(static_cast<std::int64_t>(d), spec->second.box.first[d], spec->second.box.sizes[d]);
      near(gradient, expected, name);
    }
    outputs.push_back(mine.y.detach());
  });
  for (const at::Tensor& y : outputs) EXPECT_TRUE(at::equal(y, outputs[0])) << "all ranks go on with the same bits";
}

TEST(ParallelLinears, EqualOneRankInOutputsAndEveryGradient) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_pair_is_one_rank(ranks, at::kDouble, 1e-13);
    expect_pair_is_one_rank(ranks, at::kFloat, 1e-5);
  }
}

TEST(Regions, AreEachOthersDerivatives) {
  run_ranks(3, [](Communicator& comm) {
    const double mine = comm.rank().value + 1;
    const at::Tensor x = at::full({2}, 5.0, at::kDouble).requires_grad_(true);
    const at::Tensor y = copy_to_region(x, comm) * mine;  // ranks compute different things
    y.sum().backward();
    EXPECT_EQ(x.grad()[0].item<double>(), 1 + 2 + 3);
    const at::Tensor part = at::full({2}, mine, at::kDouble).requires_grad_(true);
    const at::Tensor whole = reduce_from_region(part, comm);
    EXPECT_EQ(whole[1].item<double>(), 6);
    (whole * 7).sum().backward();
    EXPECT_EQ(part.grad()[0].item<double>(), 7) << "every rank has the whole derivative already";
  });
}

TEST(Regions, HaveSecondDerivatives) {
  run_ranks(2, [](Communicator& comm) {
    const double mine = comm.rank().value + 1;
    const at::Tensor x = at::full({1}, 3.0, at::kDouble).requires_grad_(true);
    const at::Tensor y = reduce_from_region(copy_to_region(x, comm).pow(3) * mine, comm);  // 3 x^3
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];           // 9 x^2
    EXPECT_EQ(first.item<double>(), 81);
    EXPECT_EQ(torch::autograd::grad({first}, {x})[0].item<double>(), 54);  // 18 x
  });
}

TEST(ParallelLinears, AreNeitherClonedNorShardedTwice) {
  run_ranks(2, [](Communicator& comm) {
    ColumnParallelLinear layer(4, 2);
    ShardSpecs specs;
    layer->shard(comm, "layer", specs);
    EXPECT_EQ(failure_of([&] { layer->shard(comm, "layer", specs); }).kind, Kind::usage);
    EXPECT_EQ(failure_of([&] { layer->clone(); }).kind, Kind::usage);
  });
}

}  // namespace
}  // namespace cohort::nn
