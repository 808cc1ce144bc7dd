#include "cohort/ddp/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <optional>

#include "cohort/base/failure_of.h"
#include "cohort/base/slowdown.h"
#include "cohort/collective/ranks.h"
#include "cohort/job/job.h"

namespace cohort::ddp {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

constexpr std::int64_t kIn = 5, kOut = 3, kRows = 4;

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) { return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble); }

// Values differ between ranks on purpose: DataParallel must make them rank 0's.
torch::nn::Sequential make_net(std::uint64_t seed) {
  torch::nn::Sequential net(torch::nn::Linear(kIn, 7), torch::nn::Tanh(), torch::nn::Linear(7, kOut));
  net->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.copy_(drawn(p.sizes(), seed++));
  return net;
}

at::Tensor loss_on(torch::nn::Sequential& net, int step, std::int64_t first, std::int64_t rows, std::int64_t total) {
  const at::Tensor x = drawn({total, kIn}, 100 + static_cast<std::uint64_t>(step)), y = drawn({total, kOut}, 500);
  return (net->forward(x.slice(0, first, first + rows)) - y.slice(0, first, first + rows)).square().mean();
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;
std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> p) { return std::make_unique<torch::optim::Adam>(p, 0.01); }

std::vector<at::Tensor> values(const torch::nn::Sequential& net) {
  std::vector<at::Tensor> all;
  for (const auto& p : net->parameters()) all.push_back(p.detach().clone());
  return all;
}

// The plain loop of a libtorch user on `ranks` times the batch: what ranks together must equal.
std::vector<at::Tensor> alone(int ranks, int steps, const MakeOptimizer& make) {
  auto net = make_net(1);
  const auto optimizer = make(net->parameters());
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    loss_on(net, step, 0, ranks * kRows, ranks * kRows).backward();
    optimizer->step();
  }
  return values(net);
}

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-10, 1e-12)) << i << "\n" << a[i] << "\n" << b[i];
}

struct LoopOptions {
  DataParallelOptions ddp{.lanes = 0};
  bool drop = true;  // zero_grad() drops the gradients
  int micro_batches = 1;
};

std::vector<at::Tensor> train_data_parallel(Communicator& comm, int steps, const MakeOptimizer& make, const LoopOptions& options) {
  auto net = make_net(1 + static_cast<std::uint64_t>(comm.rank().value) * 50);
  const auto optimizer = make(net->parameters());
  DataParallel ddp(comm, *net, options.ddp);
  const std::int64_t part = kRows / options.micro_batches, first = comm.rank().value * kRows;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad(options.drop);
    for (int k = 0; k < options.micro_batches; ++k) {
      std::optional<DataParallel::Pause> pause;
      if (k + 1 < options.micro_batches) pause.emplace(&ddp);
      (loss_on(net, step, first + k * part, part, comm.size() * kRows) / options.micro_batches).backward();
    }
    EXPECT_TRUE(ddp.finite());
    optimizer->step();
  }
  return values(net);
}

static_assert(!std::is_constructible_v<DataParallel, Communicator&, torch::nn::Sequential>, "a temporary would not outlive it");
static_assert(!std::is_constructible_v<DataParallel, Communicator&, at::Tensor&>);

TEST(DataParallel, TakesAModuleOrWhatHoldsIt) {
  run_ranks(1, [](Communicator& comm) {
    torch::nn::Sequential holder = make_net(1);
    torch::nn::Linear layer(kIn, kOut);
    const std::shared_ptr<torch::nn::Linear::ContainedType> shared = layer.ptr();
    const std::size_t buckets = DataParallel(comm, *holder).buckets();
    EXPECT_EQ(DataParallel(comm, holder).buckets(), buckets);
    EXPECT_EQ(DataParallel(comm, layer, {.lanes = 0}).buckets(), 1U);
    EXPECT_EQ(DataParallel(comm, shared).buckets(), 1U);
    torch::nn::Sequential empty(nullptr);
    EXPECT_THAT(failure_of([&] { DataParallel(comm, empty); }).what, HasSubstr("the module holder is empty"));
  });
}

TEST(DataParallel, AnOrdinaryLoopOnThreeRanksEqualsTheWholeBatch) {
  at::set_num_threads(1);
  const auto reference = alone(3, 10, adam);
  for (const bool drop : {true, false})
    for (const int lanes : {0, 2}) {
      LoopOptions options{.drop = drop};
      options.ddp.lanes = lanes;
      options.ddp.bucket = ByteSize{100};
      run_ranks(3, [&](Communicator& comm) { expect_close(train_data_parallel(comm, 10, adam, options), reference); });
    }
}

TEST(DataParallel, AWorldOfOneIsThePlainLoop) {
  Job job = init(group::RankInfo{});
  expect_close(train_data_parallel(job.comm(), 5, adam, {}), alone(1, 5, adam));
  auto net = make_net(1);
  DataParallel ddp(job, *net);
  loss_on(net, 0, 0, kRows, kRows).backward();
  EXPECT_TRUE(ddp.finite());
}

TEST(DataParallel, AccumulatesWithoutCommunicationWhilePaused) {
  const auto reference = alone(2, 6, adam);
  for (const int lanes : {0, 1}) {
    LoopOptions options{.micro_batches = 2};
    options.ddp.lanes = lanes;
    run_ranks(2, [&](Communicator& comm) { expect_close(train_data_parallel(comm, 6, adam, options), reference); });
  }
}

TEST(DataParallel, APausedRankCommunicatesNothing) {
  run_ranks(2, [](Communicator& comm) {
    auto net = make_net(1);
    DataParallel ddp(comm, *net, {.lanes = 1});
    const auto pause = ddp.no_sync();
    if (comm.rank() == Rank{0}) loss_on(net, 0, 0, kRows, kRows).backward();  // the other one does not
    comm.barrier();
  });
}

TEST(DataParallel, AParameterWithoutGradientCountsAsZero) {
  run_ranks(2, [](Communicator& comm) {
    auto net = make_net(1);
    DataParallel ddp(comm, *net, {.lanes = 0});
    const auto first = net->parameters()[0], last = net->parameters()[3];
    (comm.rank() == Rank{0} ? first.sum() + last.sum() : last.sum()).backward();
    EXPECT_TRUE(at::equal(first.grad(), at::full_like(first, 0.5)));
    EXPECT_TRUE(at::equal(last.grad(), at::ones_like(last)));
    EXPECT_TRUE(at::equal(net->parameters()[1].grad(), at::zeros_like(net->parameters()[1])));
  });
}

TEST(DataParallel, ReportsOnAllRanksThatAGradientIsNotFinite) {
  run_ranks(2, [](Communicator& comm) {
    auto net = make_net(1);
    DataParallel ddp(comm, *net, {.lanes = 0});
    const double factor = comm.rank() == Rank{1} ? std::numeric_limits<double>::infinity() : 1;
    (loss_on(net, 0, 0, kRows, kRows) * factor).backward();
    EXPECT_FALSE(ddp.finite());
    net->zero_grad();
    loss_on(net, 0, 0, kRows, kRows).backward();
    EXPECT_TRUE(ddp.finite());
  });
}

TEST(DataParallel, RefusesModulesThatDifferAndNamesTheFirstDifference) {
  run_ranks(3, [](Communicator& comm) {
    const bool odd = comm.rank() == Rank{2};
    torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::Linear(3, odd ? 5 : 4));
    const auto wider = failure_of([&] { DataParallel(comm, *net); });
    EXPECT_EQ(wider.kind, Kind::usage);
    EXPECT_THAT(wider.what, HasSubstr("1.weight Float [5, 3]' on rank 2 but 'parameter 1.weight Float [4, 3]' on rank 0"));
    torch::nn::Sequential longer(torch::nn::Linear(2, 3));
    if (odd) longer->push_back(torch::nn::Linear(3, 4));
    EXPECT_THAT(failure_of([&] { DataParallel(comm, *longer); }).what, HasSubstr("on rank 2 but nothing on rank 0"));
    comm.barrier();  // the communicator still works
  });
}

TEST(DataParallel, BuffersAreRankZerosAtTheStartAndAreSyncedOnRequest) {
  run_ranks(2, [](Communicator& comm) {
    torch::nn::BatchNorm1d norm(3);
    norm->running_mean.fill_(comm.rank().value + 1);
    DataParallel ddp(comm, *norm, {.lanes = 0});
    EXPECT_EQ(norm->running_mean[0].item<float>(), 1);
    norm->running_mean.fill_(comm.rank().value);
    norm->num_batches_tracked.fill_(10 + comm.rank().value);
    ddp.sync_buffers();
    EXPECT_EQ(norm->running_mean[0].item<float>(), 0.5F);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 10);
    norm->running_mean.fill_(comm.rank().value + 4);
    ddp.sync_buffers(Buffers::broadcast);
    EXPECT_EQ(norm->running_mean[0].item<float>(), 4);
  });
}

// Rank 0 alone has trained before, as after reading a checkpoint; afterwards all ranks continue as rank 0 would have.
TEST(DataParallel, OptimizerStateOfRankZeroReachesAll) {
  const std::vector<MakeOptimizer> kinds{
      adam, [](auto p) { return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.05).momentum(0.9)); },
      [](auto p) { return std::make_unique<torch::optim::Adagrad>(p, 0.05); },
      [](auto p) { return std::make_unique<torch::optim::RMSprop>(p, 0.01); }};
  for (const auto& make : kinds) {
    const auto train = [&](torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int from, int to) {
      for (int step = from; step < to; ++step) {
        optimizer.zero_grad();
        loss_on(net, step, 0, kRows, kRows).backward();
        optimizer.step();
      }
    };
    auto reference = make_net(1);
    const auto plain = make(reference->parameters());
    train(reference, *plain, 0, 6);
    run_ranks(2, [&](Communicator& comm) {
      auto net = make_net(1 + static_cast<std::uint64_t>(comm.rank().value));
      const auto optimizer = make(net->parameters());
      train(net, *optimizer, 0, comm.rank() == Rank{0} ? 3 : 1);
      DataParallel ddp(comm, *net, {.lanes = 0});
      ddp.broadcast_optimizer_state(*optimizer);
      train(net, *optimizer, 3, 6);
      expect_close(values(net), values(reference));
    });
  }
}

TEST(DataParallel, ALostRankIsAnErrorOfBackwardThatNamesIt) {
  for (const int lanes : {0, 2})
    run_ranks(2, [lanes](Communicator& comm) {
      auto net = make_net(1);
      DataParallel ddp(comm, *net, {.lanes = lanes});
      loss_on(net, 0, 0, kRows, kRows).backward();
      if (comm.rank() == Rank{1}) return;
      const auto start = Clock::now();
      const auto error = failure_of([&] { loss_on(net, 0, 0, kRows, kRows).backward(); });
      EXPECT_TRUE(error.kind == Kind::peer_lost || error.kind == Kind::aborted) << error.what;
      EXPECT_THAT(error.what, HasSubstr("rank 1"));
      EXPECT_LT(Seconds(Clock::now() - start).count(), 2 * slowdown());
    });
}

TEST(DataParallel, MayBeDestroyedBeforeItsModule) {
  auto net = make_net(1);
  run_ranks(1, [&](Communicator& comm) {
    DataParallel ddp(comm, *net);
    loss_on(net, 0, 0, kRows, kRows).backward();
  });
  net->zero_grad();
  loss_on(net, 0, 0, kRows, kRows).backward();
  EXPECT_GT(net->parameters()[0].grad().abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace cohort::ddp
