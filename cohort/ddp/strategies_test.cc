// Strategies, codecs and rates in loops of one's own: what DataParallel and Sharded promise for .strategy, .codec, .optimizer, set_lr().
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/data_parallel.h"
#include "cohort/ddp/sharded.h"
#include "cohort/sync/strategy_row.h"

namespace cohort::ddp::strategies_test {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kIn = 6, kHidden = 40, kOut = 3, kRows = 8;  // kRows: of each rank

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) { return at::randn(sizes, at::detail::createCPUGenerator(seed)); }

struct Net : torch::nn::Module {
  torch::nn::Linear body = register_module("body", torch::nn::Linear(kIn, kHidden)),
                    head = register_module("head", torch::nn::Linear(kHidden, kOut));
  explicit Net(std::uint64_t seed = 1) {
    const at::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(drawn(p.sizes(), seed++) * 0.3);
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(body(x))); }
};

at::Tensor loss_of(Net& net, int step, std::int64_t first, std::int64_t rows, std::int64_t total) {
  const at::Tensor x = drawn({total, kIn}, 100 + static_cast<std::uint64_t>(step % 4));
  return (net.forward(x) - x.slice(1, 0, kOut).sin()).square().slice(0, first, first + rows).mean();
}
at::Tensor loss_of(Net& net, int step, const Communicator& comm) {
  return loss_of(net, step, comm.rank().value * kRows, kRows, comm.size() * kRows);
}
double loss_of_all(Net& net) {
  const at::NoGradGuard no_grad;
  return loss_of(net, 0, 0, kRows, kRows).item<double>();
}

Tensors values(const torch::nn::Module& net) {
  Tensors all;
  for (const auto& p : net.parameters()) all.push_back(p.detach().clone());
  return all;
}
bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.equal(y); });
}
bool close(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return at::allclose(x, y, 1e-4, 1e-6); });
}

using Rates = std::vector<double>;  // by step; empty: the optimizer's own

// What every rank ends with.
std::vector<Tensors> train(int ranks, const DataParallelOptions& options, int steps, const Rates& rates = {}) {
  at::set_num_threads(1);
  std::vector<Tensors> ends(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Net net(1 + static_cast<std::uint64_t>(comm.rank().value) * 50);  // rank 0's values count
    DataParallel ddp(comm, net, options);
    const double before = loss_of_all(net);
    for (int step = 0; step < steps; ++step) {
      if (!rates.empty()) ddp.set_lr(rates[static_cast<std::size_t>(step)]);
      loss_of(net, step, comm).backward();
      EXPECT_TRUE(ddp.step().committed);
    }
    const auto consensus = ddp.consensus();
    EXPECT_LT(loss_of_all(net), before) << options.strategy << " " << options.codec;
    ends[static_cast<std::size_t>(comm.rank().value)] = values(net);
  });
  return ends;
}

// The same with an optimizer of torch's.
Tensors train_torch(int ranks, const DataParallelOptions& options, int steps) {
  at::set_num_threads(1);
  std::vector<Tensors> ends(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    Net net(1 + static_cast<std::uint64_t>(comm.rank().value) * 50);
    torch::optim::Adam optimizer(net.parameters(), 0.01);
    DataParallel ddp(comm, net, options);
    const double before = loss_of_all(net);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      loss_of(net, step, comm).backward();
      EXPECT_TRUE(ddp.finite());
      optimizer.step();
    }
    EXPECT_LT(loss_of_all(net), before) << options.codec;
    ends[static_cast<std::size_t>(comm.rank().value)] = values(net);
  });
  for (const auto& end : ends) EXPECT_TRUE(same(end, ends[0])) << options.codec;
  return ends[0];
}

// The plain loop on the batch of all ranks.
Tensors alone(int ranks, int steps, double lr) {
  at::set_num_threads(1);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), lr);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net, step, 0, ranks * kRows, ranks * kRows).backward();
    optimizer.step();
  }
  return values(net);
}

std::vector<std::string> drifting() {
  std::vector<std::string> all;
  for (const auto* row : sync::strategies())
    if (sync::make(row->name)->semantics().drifts()) all.emplace_back(sync::law_spec(*row));
  return all;
}

// Whether the bits of a run do.
bool repeats(const std::string& strategy) {
  for (const auto* row : sync::strategies())
    if (sync::law_spec(*row) == strategy) return row->repeats;
  return true;
}

// --- strategies

TEST(DataParallelStrategy, WithRoundsOfOneAndPlainSgdEqualsTheLoopOnTheWholeBatch) {
  const Tensors expected = alone(3, 6, 0.1);
  for (const char* strategy : {"all_reduce", "local_sgd(h=1)", "diloco(h=1, lr=1, momentum=0)"})
    for (const auto& end : train(3, {.strategy = strategy, .optimizer = "sgd(lr=0.1)", .lanes = 0}, 6))
      EXPECT_TRUE(close(end, expected)) << strategy;
  const auto reduced = train(3, {.strategy = "all_reduce", .optimizer = "adam(lr=0.01)", .lanes = 0}, 6);
  for (const char* strategy : {"zero(stage=1)", "zero(stage=2)"})
    EXPECT_TRUE(same(train(3, {.strategy = strategy, .optimizer = "adam(lr=0.01)", .lanes = 0}, 6)[2], reduced[2])) << strategy;
}

TEST(DataParallelStrategy, StandsForOneModelThatIsTheSameOnAllRanks) {
  for (const std::string& strategy : drifting()) {
    const auto ends = train(3, {.strategy = strategy, .optimizer = "sgd(lr=0.05, momentum=0.9)", .lanes = 0}, 5);
    for (const auto& end : ends) EXPECT_TRUE(same(end, ends[0])) << strategy;
    if (!repeats(strategy)) continue;
    for (const int lanes : {0, 1})
      EXPECT_TRUE(same(train(3, {.strategy = strategy, .optimizer = "sgd(lr=0.05, momentum=0.9)", .lanes = lanes}, 5)[1], ends[1]))
          << strategy << ", again with " << lanes << " lanes";
  }
}

// In the middle of a round; afterwards every rank goes on with its own.
TEST(DataParallelStrategy, AConsensusIsTheMeanOfTheModelsForAsLongAsItLives) {
  for (const char* strategy : {"local_sgd(h=4)", "dpsgd(graph=ring)"})
    run_ranks(3, [&](Communicator& comm) {
      Net net;
      DataParallel ddp(comm, net, {.strategy = strategy, .optimizer = "sgd(lr=0.1)", .lanes = 0});
      for (int step = 0; step < 6; ++step) {
        loss_of(net, step, comm).backward();
        ddp.step();
      }
      const Tensors own = values(net);
      at::Tensor mean = own[0].clone();
      comm.all_reduce(collective::piece(std::span(mean.data_ptr<float>(), static_cast<std::size_t>(mean.numel()))),
                      collective::Op::average);
      EXPECT_FALSE(mean.equal(own[0])) << strategy << " drifts";
      {
        const auto consensus = ddp.consensus();
        EXPECT_TRUE(at::allclose(values(net)[0], mean, 1e-5, 1e-7)) << strategy;
      }
      EXPECT_TRUE(same(values(net), own)) << strategy;
    });
}

// --- codecs

TEST(DataParallelCodec, ThatSendsAllOfAGradientChangesNoBit) {
  for (const int lanes : {0, 1}) {
    const DataParallelOptions plain{.optimizer = "adam(lr=0.01)", .lanes = lanes};
    DataParallelOptions whole = plain;
    whole.codec = "topk(ratio=1)";
    for (const int ranks : {1, 2, 4}) {
      const auto expected = train(ranks, plain, 6);
      for (const auto& end : train(ranks, whole, 6)) EXPECT_TRUE(same(end, expected[0])) << ranks << " ranks, " << lanes << " lanes";
      EXPECT_TRUE(same(train_torch(ranks, {.codec = "topk(ratio=1)", .lanes = lanes}, 6), train_torch(ranks, {.lanes = lanes}, 6)))
          << ranks << " ranks, " << lanes << " lanes";
    }
  }
}

TEST(DataParallelCodec, LearnsRepeatsBitForBitAndKeepsRanksTheSame) {
  for (const char* codec : {"int8", "int8(rounding=stochastic)", "topk(ratio=0.1)", "bf16"}) {
    const DataParallelOptions options{.codec = codec, .optimizer = "adam(lr=0.01)", .lanes = 0};
    const auto ends = train(3, options, 12);
    for (const auto& end : ends) EXPECT_TRUE(same(end, ends[0])) << codec;
    EXPECT_TRUE(same(train(3, options, 12)[0], ends[0])) << codec;
    const DataParallelOptions of_torch{.codec = codec, .lanes = 1};
    EXPECT_TRUE(same(train_torch(3, of_torch, 12), train_torch(3, of_torch, 12))) << codec;
  }
}

TEST(ShardedCodec, LearnsAndRepeatsBitForBitWhateverStageAndLanes) {
  at::set_num_threads(1);
  const auto run = [](const std::string& strategy, const char* codec, int lanes) {
    Tensors end;
    run_ranks(3, [&](Communicator& comm) {
      Net net;
      Sharded zero(comm, net,
                   {.optimizer = "adamw(lr=0.01)", .bucket = ByteSize{400}, .lanes = lanes, .strategy = strategy, .codec = codec});
      const double before = loss_of_all(net);
      for (int step = 0; step < 12; ++step) {
        zero.set_lr(step % 2 == 0 ? 0.01 : 0.004);
        loss_of(net, step, comm).backward();
        EXPECT_TRUE(zero.step().committed);
      }
      EXPECT_LT(loss_of_all(net), before / 2) << strategy << " " << codec;
      if (comm.rank() == Rank{1}) end = values(net);
    });
    return end;
  };
  for (const char* codec : {"int8", "topk(ratio=0.1)"}) {
    const Tensors expected = run("zero(stage=2)", codec, 0);
    for (const char* strategy : {"zero(stage=1)", "zero(stage=2)"})
      for (const int lanes : {0, 1, 2})
        EXPECT_TRUE(same(run(strategy, codec, lanes), expected)) << codec << " " << strategy << " " << lanes;
  }
}

// --- learning rates

struct Weights : torch::nn::Module {
  at::Tensor w = register_parameter("w", at::zeros({4}));
};

TEST(Rate, IsTheOptimizersThenThatOfSetLrAndForOneStepThatOfStep) {
  run_ranks(2, [](Communicator& comm) {
    const auto expect_moves = [](at::Tensor& w, const auto& move, double by) {
      const float before = w[0].template item<float>();
      w.sum().backward();
      move();
      EXPECT_EQ(w[0].template item<float>(), before - static_cast<float>(by));
    };
    const auto expect_rates = [&](auto& trainer, at::Tensor& w) {
      const auto step = [&] { trainer.step(); };
      expect_moves(w, step, 0.5);
      trainer.set_lr(0.25);
      expect_moves(w, step, 0.25);
      expect_moves(
          w, [&] { trainer.step(2); }, 2);
      expect_moves(w, step, 0.25);
      expect_moves(
          w, [&] { trainer.set_lr(1), trainer.step(); }, 1);
      expect_moves(w, step, 1);
    };
    for (const int lanes : {0, 1}) {
      Weights a, b, c;
      DataParallel ddp(comm, a, {.optimizer = "sgd(lr=0.5)", .lanes = lanes});
      expect_rates(ddp, a.w);
      DataParallel coded(comm, b, {.codec = "bf16", .optimizer = "sgd(lr=0.5)", .lanes = lanes});
      expect_rates(coded, b.w);
      Sharded zero(comm, c, {.stage = 2, .optimizer = "sgd(lr=0.5)", .lanes = lanes});
      expect_rates(zero, c.w);
    }
  });
}

TEST(Rate, OfACodecWithFeedbackIsTheOneOfTheStepWhateverLanes) {
  const Rates rates{0.2, 0.05, 0.1, 0.4, 0, 0.1, 0.2, 0.025};
  for (const char* codec : {"topk(ratio=0.1)", "int8"}) {
    const auto expected = train(2, {.codec = codec, .optimizer = "sgd(lr=0.3)", .lanes = 0}, 8, rates);
    for (const int lanes : {1, 2})
      EXPECT_TRUE(same(train(2, {.codec = codec, .optimizer = "sgd(lr=0.3)", .lanes = lanes}, 8, rates)[1], expected[1])) << codec;
  }
}

// The sum over steps of rate * sent, plus rate * what is kept, is the sum of rate * gradient: with dyadic numbers exactly.
TEST(Rate, MovesParametersByAllThatGradientsSaidLessWhatACodecKeeps) {
  const at::Tensor gradient = at::tensor({8.0F, -4.0F, 2.0F, 1.0F});  // of which topk(ratio=0.25) sends one
  for (const int stage : {1, 2})
    for (const int lanes : {0, 1})
      run_ranks(2, [&](Communicator& comm) {
        Weights net;
        Sharded zero(comm, net, {.stage = stage, .optimizer = "sgd(lr=1)", .lanes = lanes, .codec = "topk(ratio=0.25)"});
        double last = 1, rates = 0;
        for (const double lr : {1.0, 0.25, 0.5, 0.125, 2.0}) {
          zero.set_lr(lr);
          (net.w * gradient).sum().backward();
          EXPECT_TRUE(zero.step().committed);
          last = lr;
          rates += lr;
        }
        at::Tensor kept;
        zero.engine().visit([&](const StateItem& item) {
          if (item.group == "residual") kept = engine::borrowed(item.values).clone();
        });
        ASSERT_TRUE(kept.defined());
        EXPECT_GT(kept.abs().sum().item<double>(), 0);
        EXPECT_TRUE((-net.w.detach() + last * kept).equal(rates * gradient)) << net.w << kept;
      });
}

TEST(Rate, OfACodecWithFeedbackIsSetBeforeBackward) {
  run_ranks(2, [](Communicator& comm) {
    const auto expect_refusals = [](auto& trainer, at::Tensor& w) {
      w.sum().backward();
      const auto expected =
          AllOf(HasSubstr("0.25 in place of 0.5"), HasSubstr("codec=topk"), HasSubstr("call set_lr(0.25) before backward"));
      for (const auto& error : {failure_of([&] { trainer.step(0.25); }), failure_of([&] { trainer.set_lr(0.25); })}) {
        EXPECT_EQ(error.kind, Kind::usage);
        EXPECT_THAT(error.what, expected);
      }
      EXPECT_TRUE(trainer.step(0.5).committed) << "the rate that it has";
      EXPECT_EQ(w[0].template item<float>(), -0.5F);
      w.sum().backward();
      trainer.step();
      EXPECT_EQ(w[0].template item<float>(), -1) << "a refused rate is not kept";
    };
    for (const int lanes : {0, 1}) {
      Weights a, b;
      DataParallel ddp(comm, a, {.codec = "topk(ratio=1)", .optimizer = "sgd(lr=0.5)", .lanes = lanes});
      expect_refusals(ddp, a.w);
      Sharded zero(comm, b, {.stage = 2, .optimizer = "sgd(lr=0.5)", .lanes = lanes, .codec = "topk(ratio=1)"});
      expect_refusals(zero, b.w);
    }
  });
}

// --- what cannot be

TEST(DataParallelStrategy, RefusesWhatCannotBeSayingWhy) {
  run_ranks(2, [](Communicator& comm) {
    Net net;
    const auto refusal = [&](const DataParallelOptions& options) {
      const auto error = failure_of([&] { DataParallel(comm, net, options); });
      EXPECT_EQ(error.kind, Kind::usage) << error.what;
      return error.what;
    };
    EXPECT_THAT(refusal({.strategy = "local_sgd"}), HasSubstr("without an optimizer"));
    EXPECT_THAT(refusal({.strategy = "local_sgd", .codec = "int8", .optimizer = "sgd"}), HasSubstr("this strategy sends models"));
    EXPECT_THAT(refusal({.clip_norm = 1}), HasSubstr("clip_norm is for .optimizer"));
    EXPECT_THAT(refusal({.strategy = "locals_gd"}), HasSubstr("local_sgd"));
    DataParallel ddp(comm, net);
    EXPECT_THAT(failure_of([&] { ddp.step(); }).what, HasSubstr("step() without .optimizer"));
    EXPECT_THAT(failure_of([&] { ddp.step(0.1); }).what, HasSubstr("step() without .optimizer"));
    EXPECT_THAT(failure_of([&] { ddp.set_lr(0.1); }).what, HasSubstr("set_lr() without .optimizer"));
    for (const std::string& strategy : drifting())
      EXPECT_THAT(failure_of([&] { Sharded(comm, net, {.strategy = strategy}); }).what,
                  HasSubstr("shards nothing; it is one for DataParallel"));
    Net sharded;
    Sharded zero(comm, sharded, {.stage = 2, .codec = "int8"});
    EXPECT_THAT(failure_of([&] { const auto pause = zero.no_sync(); }).what, HasSubstr("belongs to a whole step"));
  });
}

TEST(DataParallelStrategy, OptionsThatDifferBetweenRanksAreRefusedOnAllOfThemByName) {
  run_ranks(3, [](Communicator& comm) {
    Net net;
    const auto refusal = [&](const DataParallelOptions& mine, const DataParallelOptions& theirs) {
      const auto error = failure_of([&] { DataParallel(comm, net, comm.rank() == Rank{2} ? theirs : mine); });
      EXPECT_TRUE(error.kind == Kind::usage || error.what == "(it did not fail)") << error.what;
      return error.what;
    };
    const auto both = [](const char* theirs, const char* first) {
      return HasSubstr(fmt::format("DataParallel: the options differ: '{}' on rank 2 but '{}' on rank 0", theirs, first));
    };
    EXPECT_THAT(refusal({.optimizer = "sgd"}, {.strategy = "local_sgd", .optimizer = "sgd"}),
                both("strategy: local_sgd", "strategy: all_reduce"));
    EXPECT_THAT(refusal({.codec = "int8"}, {}), both("codec: none", "codec: int8"));
    EXPECT_THAT(refusal({.optimizer = "adamw"}, {}), both("optimizer: none", "optimizer: adamw"));
    EXPECT_THAT(refusal({.optimizer = "adamw"}, {.optimizer = "no_such"}), both("optimizer: no_such", "optimizer: adamw"));
    EXPECT_THAT(refusal({.optimizer = "sgd"}, {.optimizer = "sgd", .clip_norm = 1}), both("clip_norm: 1", "clip_norm: 0"));
    EXPECT_THAT(refusal({.bucket = ByteSize{2_KiB}}, {.bucket = ByteSize{1_KiB}}), both("bucket: 1024 bytes", "bucket: 2048 bytes"));
    EXPECT_EQ(refusal({.lanes = 0}, {.lanes = 1}), "(it did not fail)") << "ranks agree on the fewest";
    comm.barrier();  // the communicator still works
  });
}

// --- weights from elsewhere

// Rank 0 alone has them, in the memory that was there or, as torch::load() does, in memory of their own.
void load_into(Net& net, const Net& from, bool by_torch) {
  if (by_torch) {
    std::stringstream bytes;
    torch::serialize::OutputArchive out;
    from.save(out);
    out.save_to(bytes);
    torch::serialize::InputArchive in;
    in.load_from(bytes);
    return net.load(in);
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < net.parameters().size(); ++i) net.parameters()[i].copy_(from.parameters()[i]);
}

TEST(DataParallel, BroadcastParametersBeginsAnewWithWhatWasLoaded) {
  std::vector<std::string> strategies = drifting();
  strategies.emplace_back("all_reduce");
  for (const std::string& strategy : strategies)
    for (const bool by_torch : {false, true})
      run_ranks(2, [&](Communicator& comm) {
        Net net, loaded(900);
        DataParallel ddp(comm, net, {.strategy = strategy, .optimizer = "sgd(lr=0.1, momentum=0.5)", .lanes = 0});
        const auto train = [&](int steps) {
          for (int step = 0; step < steps; ++step) {
            loss_of(net, step, comm).backward();
            EXPECT_TRUE(ddp.step().committed);
          }
        };
        for (const int before : {0, 3}) {
          train(before);
          if (comm.rank() == Rank{0}) load_into(net, loaded, by_torch);
          ddp.broadcast_parameters();
          ddp.set_lr(0);
          train(4);
          EXPECT_TRUE(close(values(net), values(loaded))) << strategy << " after " << before << " steps";
          const auto consensus = ddp.consensus();
          EXPECT_TRUE(close(values(net), values(loaded))) << strategy << " after " << before << " steps";
          ddp.set_lr(0.1);
        }
        train(1);
        const auto consensus = ddp.consensus();
        EXPECT_FALSE(strategy == "all_reduce" && same(values(net), values(loaded))) << "it goes on learning";
      });
}

// Forward would read them for ever, and the optimizer move others.
TEST(Weights, InOtherMemoryThanTheOptimizersAreRefusedByName) {
  run_ranks(2, [](Communicator& comm) {
    const auto expect_refusal = [&](auto& trainer, Net& net) {
      loss_of(net, 0, comm).backward();
      EXPECT_TRUE(trainer.step().committed);
      load_into(net, Net(900), true);
      loss_of(net, 1, comm).backward();
      const auto error = failure_of([&] { trainer.step(); });
      EXPECT_EQ(error.kind, Kind::usage);
      EXPECT_THAT(error.what, AllOf(HasSubstr("parameter head.bias was given other memory"), HasSubstr("broadcast_parameters()")));
    };
    Net a, b;
    DataParallel ddp(comm, a, {.optimizer = "sgd(lr=0.1)"});
    expect_refusal(ddp, a);
    Sharded zero(comm, b, {.stage = 2, .optimizer = "sgd(lr=0.1)"});
    expect_refusal(zero, b);
  });
}

}  // namespace
}  // namespace cohort::ddp::strategies_test
