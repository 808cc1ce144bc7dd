// Sharded::save() and load(): training goes on as if it had never stopped, on any number of ranks and at any stage.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <limits>
#include <map>

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
  explicit Net(std::uint64_t seed, at::ScalarType type = at::kDouble) {
    to(type);
    const at::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(drawn(p.sizes(), seed++));
    in->bias.set_requires_grad(false);  // a frozen one is whole on all ranks
  }
};

at::Tensor loss_of(Net& net, Sharded& zero, int step, const Communicator& comm) {
  const std::int64_t first = kRows * comm.rank().value / comm.size(), last = kRows * (comm.rank().value + 1) / comm.size();
  const at::ScalarType type = net.in->bias.scalar_type();
  const at::Tensor x = drawn({kRows, kIn}, 100 + static_cast<std::uint64_t>(step)).slice(0, first, last).to(type);
  const at::Tensor y = drawn({kRows, kOut}, 500).slice(0, first, last).to(type);
  const at::Tensor hidden = zero.block("in", x, [&](const at::Tensor& t) { return torch::tanh(net.in(t)); });
  return (zero.block("head", hidden, [&](const at::Tensor& t) { return net.head(t); }) - y).square().mean();
}

ShardedOptions options_for(Net& net, int stage, const std::string& optimizer, const std::string& codec = "none") {
  return {.stage = stage,
          .optimizer = optimizer,
          .bucket = ByteSize{100},
          .lanes = stage % 2,
          .codec = codec,
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

// --- what a codec has not sent yet is each rank's own

constexpr const char* kRule = "adamw(lr=0.01, weight_decay=0.1)";

struct Coded {  // codecs are for fp32
  Net net;
  Sharded zero;
  Coded(Communicator& comm, int stage, const std::string& codec, std::uint64_t seed = 1)
      : net(seed, at::kFloat), zero(comm, net, options_for(net, stage, kRule, codec)) {}
};
std::map<std::string, at::Tensor> residuals(Sharded& zero) {
  std::map<std::string, at::Tensor> all;
  zero.engine().visit([&](const StateItem& item) {
    if (item.group == "residual") all[item.key()] = engine::borrowed(item.values).clone();
  });
  return all;
}
void save_coded(const Layout& on, const std::string& codec, const std::string& folder) {
  run_ranks(on.ranks, [&](Communicator& comm) {
    Coded job(comm, on.stage, codec);
    train(job.net, job.zero, 0, kBefore, comm);
    job.zero.save(folder);
  });
}

TEST(ShardedState, WhatACodecKeepsComesBackBitForBitOnTheSameNumberOfRanks) {
  at::set_num_threads(1);
  for (const char* codec : {"int8", "topk(ratio=0.1)"})
    for (const int stage : {1, 2, 3}) {
      std::vector<Tensors> expected(3), found(3);
      std::vector<std::map<std::string, at::Tensor>> kept(3);
      const TempDir dir;
      run_ranks(3, [&](Communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank().value);
        Coded job(comm, stage, codec);
        train(job.net, job.zero, 0, kBefore, comm);
        job.zero.save(dir.path());
        kept[me] = residuals(job.zero);
        train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
        expected[me] = values(job.net, job.zero);
      });
      run_ranks(3, [&](Communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank().value);
        Coded job(comm, stage, codec, 77);
        EXPECT_EQ(job.zero.load(dir.path()), kBefore);
        for (const auto& [key, t] : residuals(job.zero)) EXPECT_TRUE(t.equal(kept[me].at(key))) << key;
        train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
        found[me] = values(job.net, job.zero);
      });
      EXPECT_FALSE(kept[0].at("head.weight/sent").equal(kept[1].at("head.weight/sent"))) << "each rank has its own";
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t i = 0; i + 1 < found[r].size(); ++i)
          EXPECT_TRUE(found[r][i].equal(expected[r][i])) << codec << ", stage " << stage << ", rank " << r << ", tensor " << i;
    }
}

// What another codec has not sent is a gradient, too.
TEST(ShardedState, WhatACodecKeepsGoesOverToAnotherStageAndCodec) {
  const TempDir dir;
  save_coded({2, 1}, "topk(ratio=0.1)", dir.path());
  std::map<std::string, at::Tensor> kept;
  run_ranks(2, [&](Communicator& comm) {
    Coded job(comm, 3, "int8", 77);
    EXPECT_EQ(job.zero.load(dir.path()), kBefore);
    EXPECT_GT(residuals(job.zero).at("head.weight/sent").abs().sum().item<double>(), 0);
    EXPECT_EQ(job.zero.engine().residual_weight(), 0.01);
    train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
  });
}

// The mean over the ranks, which is what moves parameters, is that of before.
TEST(ShardedState, WhatACodecKeepsIsSharedOutOnAnotherNumberOfRanks) {
  const TempDir dir;
  std::vector<std::map<std::string, at::Tensor>> kept(2);
  run_ranks(2, [&](Communicator& comm) {
    Coded job(comm, 2, "topk(ratio=0.1)");
    train(job.net, job.zero, 0, kBefore, comm);
    job.zero.save(dir.path());
    kept[static_cast<std::size_t>(comm.rank().value)] = residuals(job.zero);
  });
  run_ranks(3, [&](Communicator& comm) {
    Coded job(comm, 2, "topk(ratio=0.1)", 77);
    EXPECT_EQ(job.zero.load(dir.path()), kBefore);
    for (const auto& [key, t] : residuals(job.zero)) EXPECT_TRUE(at::allclose(t, (kept[0].at(key) + kept[1].at(key)) / 2)) << key;
    EXPECT_EQ(job.zero.engine().residual_weight(), 0.01);
    train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
  });
}

// Also where this job has trained before it loads.
TEST(ShardedState, WhatACodecKeepsBeginsAnewWhereThereWasNone) {
  const TempDir coded, plain;
  save_coded({2, 2}, "topk(ratio=0.1)", coded.path());
  save_coded({3, 1}, "none", plain.path());
  run_ranks(3, [&](Communicator& comm) {
    Coded job(comm, 2, "topk(ratio=0.1)", 77);
    train(job.net, job.zero, 0, 1, comm);
    EXPECT_EQ(job.zero.load(plain.path()), kBefore);
    EXPECT_EQ(residuals(job.zero).size(), 3U);
    for (const auto& [key, t] : residuals(job.zero)) EXPECT_TRUE(t.equal(at::zeros_like(t))) << key;
    EXPECT_EQ(job.zero.engine().residual_weight(), 0);
    train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
  });
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& comm) {
      Coded job(comm, 1, "none", 77);
      EXPECT_EQ(job.zero.load(coded.path()), kBefore);
      train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
    });
}

TEST(ShardedState, ReshardReadsWhatACodecKeeps) {
  const TempDir dir, to;
  save_coded({2, 2}, "int8", dir.path());
  checkpoint::reshard(checkpoint::open_checkpoint(dir.path()), to.path(), {.ranks = 3, .stage = 3});
  run_ranks(3, [&](Communicator& comm) {
    Coded job(comm, 3, "int8", 77);
    EXPECT_EQ(job.zero.load(to.path()), kBefore);
    train(job.net, job.zero, kBefore, kBefore + kAfter, comm);
  });
}

// They stay whole on all ranks, and their update is sharded.
TEST(ShardedState, ParametersOfNoBlockComeBackToo) {
  const TempDir dir;
  Tensors expected;
  const auto options_of = [](Net& net) {
    ShardedOptions options = options_for(net, 3, kRule);
    options.blocks.pop_back();
    return options;
  };
  const auto step = [](Net& net, Sharded& zero, int at, const Communicator& comm) {
    const at::Tensor x = drawn({kRows, kIn}, 100 + static_cast<std::uint64_t>(at) * 10 + static_cast<std::uint64_t>(comm.rank().value));
    net.head(zero.block("in", x, [&](const at::Tensor& t) { return torch::tanh(net.in(t)); })).square().mean().backward();
    EXPECT_TRUE(zero.step().committed);
  };
  run_ranks(2, [&](Communicator& comm) {
    Net net(1);
    Sharded zero(comm, net, options_of(net));
    for (int at = 0; at < 2; ++at) step(net, zero, at, comm);
    zero.save(dir.path());
    step(net, zero, 2, comm);
    const Tensors end = values(net, zero);
    if (comm.rank() == Rank{0}) expected = end;
  });
  run_ranks(2, [&](Communicator& comm) {
    Net net(77);
    Sharded zero(comm, net, options_of(net));
    EXPECT_EQ(zero.load(dir.path()), 2);
    step(net, zero, 2, comm);
    expect_close(values(net, zero), expected, "parameters of no block");
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
