// bad_rank STEP RANK nan|inf: one rank of a training loop with DataParallel, whose loss is not finite at one step of one rank. Every rank
// must detect that, skip that step and no other, and end with the same finite bits as all.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <string>

#include "cohort/ddp/data_parallel.h"
#include "cohort/job/job.h"
#include "cohort/nn/tensor.h"

namespace {

constexpr int kSteps = 10;

bool same_on_all(cohort::collective::Communicator& comm, const at::Tensor& values) {
  const at::Tensor low = values.detach().view(at::kInt).clone(), high = low.clone();  // as integers: nothing is rounded
  cohort::nn::all_reduce(comm, low, cohort::collective::Op::min);
  cohort::nn::all_reduce(comm, high, cohort::collective::Op::max);
  return at::equal(low, high);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("usage: bad_rank STEP RANK nan|inf");
  const int bad_step = std::atoi(argv[1]), bad_rank = std::atoi(argv[2]);
  const double bad = std::string(argv[3]) == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  cohort::Job job = cohort::init();
  at::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(20, 64), torch::nn::Tanh(), torch::nn::Linear(64, 5));
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  cohort::DataParallel ddp(job, *net, {});
  std::string skipped;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const double factor = step == bad_step && job.rank().value == bad_rank ? bad : 1.0;
    (net->forward(at::randn({8, 20})).square().mean() * factor).backward();
    if (ddp.finite())
      optimizer.step();
    else
      skipped += (skipped.empty() ? "" : ", ") + std::to_string(step);
  }
  for (const auto& p : net->parameters())
    if (!same_on_all(job.comm(), p) || !at::isfinite(p).all().item<bool>()) throw std::runtime_error("ranks hold different or bad values");
  std::printf("rank %d: skipped %s; the same finite bits on all ranks\n", job.rank().value, skipped.c_str());
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
