// DataParallel, Sharded and GradScaler with modules on a GPU, in a loop of one's own.
#include <torch/torch.h>

#include "cohort/collective/ranks.h"
#include "cohort/ddp/data_parallel.h"
#include "cohort/ddp/grad_scaler.h"
#include "cohort/ddp/sharded.h"
#include "cohort/engine/testing.h"

namespace cohort::ddp {
namespace {

using collective::Communicator;
using collective::run_ranks;

torch::nn::Sequential small_net(at::Device device) {
  torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 2));
  net->to(torch::kDouble);
  const torch::NoGradGuard no_grad;  // not by torch's generator, which the ranks of one process share
  for (auto& p : net->parameters()) p.copy_(at::sin(at::arange(p.numel(), torch::kDouble)).view(p.sizes()));
  net->to(device);
  return net;
}

at::Tensor loss_of(torch::nn::Sequential& net, at::Device device, int rank, int step) {
  const at::Tensor x = at::sin(at::arange(15, torch::kDouble).view({3, 5}) * (rank + 1) + step).to(device);
  return net->forward(x).pow(2).mean();
}

const at::Device kCuda(at::kCUDA, 0);

TEST(GpuDataParallel, StepsAsOnTheCpu) {
  for (const std::string& optimizer : {std::string("adamw(lr=0.01)"), std::string()}) {
    // Without an optimizer a step ends within backward, whose thread for the GPU ranks of one process share.
    const int ranks = optimizer.empty() ? 1 : 2;
    std::vector<std::vector<at::Tensor>> all(2);
    for (const at::Device device : {at::Device(at::kCPU), kCuda})
      run_ranks(ranks, [&](Communicator& comm) {
        auto net = small_net(device);
        DataParallel ddp(comm, *net, {.optimizer = optimizer, .lanes = 1}, 4, ranks);
        torch::optim::SGD sgd(net->parameters(), 0.1);
        for (int step = 0; step < 3; ++step) {
          if (optimizer.empty()) sgd.zero_grad();
          loss_of(net, device, comm.rank().value, step).backward();
          optimizer.empty() ? static_cast<void>(sgd.step()) : static_cast<void>(ddp.step());
        }
        if (comm.rank().value == ranks - 1)
          for (const auto& p : net->parameters()) all[device.is_cpu() ? 0 : 1].push_back(p.detach().cpu());
      });
    for (std::size_t i = 0; i < all[0].size(); ++i)
      EXPECT_LT((all[0][i] - all[1][i]).abs().max().item<double>(), 1e-12) << optimizer << " " << i;
  }
}

TEST(GpuSharded, StepsAsOnTheCpu) {
  for (const int stage : {1, 2}) {
    const int ranks = 2;
    std::vector<std::vector<at::Tensor>> all(2);
    for (const at::Device device : {at::Device(at::kCPU), kCuda})
      run_ranks(ranks, [&](Communicator& comm) {
        auto net = small_net(device);
        Sharded sharded(comm, *net, {.stage = stage, .optimizer = "adamw(lr=0.01)", .lanes = 1}, 4, ranks);
        for (int step = 0; step < 3; ++step) {
          loss_of(net, device, comm.rank().value, step).backward();
          EXPECT_TRUE(sharded.step().committed);
        }
        if (comm.rank() == Rank{0})
          for (const auto& p : net->parameters()) all[device.is_cpu() ? 0 : 1].push_back(p.detach().cpu());
      });
    for (std::size_t i = 0; i < all[0].size(); ++i) EXPECT_LT((all[0][i] - all[1][i]).abs().max().item<double>(), 1e-12) << stage;
  }
}

TEST(GpuGradScaler, LeavesOutTheStepThatOverflows) {
  const at::Tensor w = at::ones({4}, at::TensorOptions().device(kCuda)).requires_grad_(true);
  torch::optim::SGD sgd({w}, 0.5);
  GradScaler scaler("torch(init=8)");
  scaler.scale(w.sum()).backward();
  EXPECT_TRUE(scaler.step(sgd));
  scaler.update();
  EXPECT_TRUE(at::equal(w.detach().cpu(), at::full({4}, 0.5)));
  sgd.zero_grad();
  scaler.scale((w * std::numeric_limits<float>::infinity()).sum()).backward();
  EXPECT_FALSE(scaler.step(sgd));
  scaler.update();
  EXPECT_EQ(scaler.value(), 4);
  EXPECT_TRUE(at::equal(w.detach().cpu(), at::full({4}, 0.5)));
}

}  // namespace
}  // namespace cohort::ddp
