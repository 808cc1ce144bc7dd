// Sharded::save() and load(): training goes on as if it had never stopped, on any number of ranks and at any stage.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <limits>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/contents.h"
#include "cohort/checkpoint/reshard.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/sharded.h"

namespace cohort::ddp::sharded_state_test {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kIn = 5, kHidden = 300, kOut = 3, kRows = 12;  // kHidden: blocks of 256 elements for more than one rank
constexpr int kBefore = 3, kAfter = 3;

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) { return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble); }

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kIn, kHidden)),
                    head = register_module("head", torch::nn::Linear(kHidden, kOut));
  at::Tensor seen = register_buffer("seen", at::zeros({1}, at::kDouble));  // rows of this rank: a buffer that is saved too
  explicit Net(std::uint64_t seed) {
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(drawn(p.sizes(), seed++));
    in->bias.set_requires_grad(false);  // a frozen one is whole on all ranks
  }
};

at::Tensor loss_of(Net& net, Sharded& zero, int step, const Communicator& comm) {
  const std::int64_t first = kRows * comm.rank().value / comm.size(), last = kRows * (comm.rank().value + 1) / comm.size();
  const at::Tensor x = drawn({kRows, kIn}, 100 + static_cast<std::uint64_t>(step)).slice(0, first, last);
  const at::Tensor y = drawn({kRows, kOut}, 500).slice(0, first, last);
  const at::Tensor hidden = zero.block("in", x, [&](const at::Tensor& t) { return torch::tanh(net.in(t)); });
  return (zero.block("head", hidden, [&](const at::Tensor& t) { return net.head(t); }) - y).square().mean();
}

ShardedOptions options_for(Net& net, int stage, const std::string& optimizer) {
  return {.stage = stage,
          .optimizer = optimizer,
          .bucket = ByteSize{100},
          .lanes = stage % 2,
          .blocks = {{"in", net.in.ptr()}, {"head", net.head.ptr()}},
          .groups = {{.parameters = {"head.*"}, .weight_decay = 0.3, .lr_scale = 10}}};
}
void train(Net& net, Sharded& zero, int from, int to, const Communicator& comm) {
  for (int step = from; step < to; ++step) {
    loss_of(net, zero, step, comm).backward();
    EXPECT_TRUE(zero.step().committed);
    net.seen += 1;
  }
}
Tensors values(Net& net, Sharded& zero) {
  zero.engine().make_whole();
  Tensors all;
  for (const auto& p : net.parameters()) all.push_back(p.detach().clone());
  all.push_back(net.seen.clone());
  return all;
}
void expect_close(const Tensors& a, const Tensors& b, const std::string& where) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-10, 1e-12)) << where << ", tensor " << i;
}

Tensors never_stopped(const std::string& optimizer) {
  Tensors end;
  run_ranks(1, [&](Communicator& comm) {
    Net net(1);
    Sharded zero(comm, net, options_for(net, 1, optimizer));
    train(net, zero, 0, kBefore + kAfter, comm);
    end = values(net, zero);
  });
  return end;
}

struct Layout {
  int ranks, stage;
};
void save_after_some(const Layout& on, const std::string& optimizer, const std::string& folder) {
  run_ranks(on.ranks, [&](Communicator& comm) {
    Net net(1);
    Sharded zero(comm, net, options_for(net, on.stage, optimizer));
    train(net, zero, 0, kBefore, comm);
    EXPECT_EQ(zero.save(folder), fmt::format("{}/step-{:08}", folder, kBefore));
    train(net, zero, kBefore, kBefore + 1, comm);  // saving ends nothing
  });
}
void load_and_go_on(const Layout& on, const std::string& optimizer, const std::string& folder, const Tensors& reference) {
  run_ranks(on.ranks, [&](Communicator& comm) {
    Net net(77);
    Sharded zero(comm, net, options_for(net, on.stage, optimizer));
    EXPECT_EQ(zero.load(folder), kBefore);
    EXPECT_EQ(zero.updates(), kBefore);
    train(net, zero, kBefore, kBefore + kAfter, comm);
    expect_close(values(net, zero), reference, fmt::format("{}, {} ranks, stage {}", optimizer, on.ranks, on.stage));
  });
}

TEST(ShardedState, GoesOnOnAnyNumberOfRanksAtAnyStage) {
  at::set_num_threads(1);
  for (const std::string optimizer :
       {"adamw(lr=0.01, weight_decay=0.1)", "sgd(lr=1e-4, momentum=0.9, nesterov=true)", "adagrad(lr=0.01)"}) {
    const Tensors reference = never_stopped(optimizer);
    for (const Layout from : {Layout{1, 2}, Layout{2, 1}, Layout{3, 3}}) {
      const TempDir dir;
      save_after_some(from, optimizer, dir.path());
      for (const Layout to : {Layout{1, 1}, Layout{2, 3}, Layout{3, 2}}) load_and_go_on(to, optimizer, dir.path(), reference);
    }
  }
}

TEST(ShardedState, ReshardReadsIt) {
  const TempDir dir, to;
  save_after_some({2, 3}, "adamw(lr=0.01, weight_decay=0.1)", dir.path());
  checkpoint::reshard(checkpoint::open_checkpoint(dir.path()), to.path(), {.ranks = 1, .stage = 0});
  load_and_go_on({2, 2}, "adamw(lr=0.01, weight_decay=0.1)", to.path(), never_stopped("adamw(lr=0.01, weight_decay=0.1)"));
}

TEST(ShardedState, KeepsTheNewestAndLoadsNothingFromNowhere) {
  const TempDir dir;
  run_ranks(2, [&](Communicator& comm) {
    Net net(1);
    Sharded zero(comm, net, options_for(net, 2, "sgd(lr=0.01)"));
    EXPECT_EQ(zero.load(dir.file("none")), std::nullopt);
    EXPECT_EQ(zero.load(dir.path()), std::nullopt);
    for (int step = 0; step < 4; ++step) {
      train(net, zero, step, step + 1, comm);
      zero.save(dir.path(), 2);
    }
  });
  EXPECT_EQ(checkpoint::Store(dir.path()).list().size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(dir.file("none")));
}

TEST(ShardedState, WhatDoesNotFitIsRefusedOnAllRanksAndChangesNothing) {
  const TempDir dir;
  save_after_some({2, 1}, "sgd(lr=0.01)", dir.path());
  run_ranks(2, [&](Communicator& comm) {
    Net net(5);
    Sharded zero(comm, net, options_for(net, 1, "adamw"));
    const at::Tensor before = net.head->weight.detach().clone();
    const auto error = failure_of([&] { zero.load(dir.path()); });
    EXPECT_EQ(error.kind, Kind::usage);
    if (comm.rank() == Rank{0}) {
      EXPECT_THAT(error.what, AllOf(HasSubstr("was trained with sgd(lr=0.01"), HasSubstr("no exp_avg of in.weight, which adamw")));
    }
    EXPECT_TRUE(net.head->weight.equal(before));
    EXPECT_EQ(zero.updates(), 0);
  });
}

// GradScaler does not call the optimizer then, and its count stays.
TEST(Sharded, AStepThatIsCalledOffIsNoneOfTheOptimizers) {
  Tensors ends[2];
  for (const bool overflow : {false, true})
    run_ranks(1, [&](Communicator& comm) {
      Net net(1);
      Sharded zero(comm, net, options_for(net, 1, "adam(lr=0.01)"));
      train(net, zero, 0, 2, comm);
      if (overflow) {
        (loss_of(net, zero, 9, comm) * std::numeric_limits<double>::infinity()).backward();
        EXPECT_FALSE(zero.step().committed);
        EXPECT_EQ(zero.updates(), 2);
      }
      train(net, zero, 2, 4, comm);
      ends[overflow ? 1 : 0] = values(net, zero);
    });
  for (std::size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(ends[0][i].equal(ends[1][i])) << "tensor " << i;
}

}  // namespace
}  // namespace cohort::ddp::sharded_state_test
