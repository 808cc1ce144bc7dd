// train_rank LANES: one rank of a wrapped loop. It trains its part of every batch, and for itself the whole of it; both must end with the
// same parameters up to rounding, and all ranks with the same bits.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

#include "cohort/base/error.h"
#include "cohort/ddp/data_parallel.h"
#include "cohort/job/job.h"
#include "cohort/nn/tensor.h"

namespace {

constexpr std::int64_t kRows = 6;  // of each rank

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(20, 300), torch::nn::Tanh(), torch::nn::Linear(300, 5));
  net->to(at::kDouble);
  std::uint64_t seed = 1;
  const at::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.copy_(at::randn(p.sizes(), at::detail::createCPUGenerator(seed++), at::kDouble) / 5);
  return net;
}

void step(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int number, int first, int parts, int of) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + number));
  const at::Tensor x = at::randn({of * kRows, 20}, generator, at::kDouble), y = at::randn({of * kRows, 5}, generator, at::kDouble);
  const auto mine = [&](const at::Tensor& t) { return t.slice(0, first * kRows, (first + parts) * kRows); };
  optimizer.zero_grad();
  (net->forward(mine(x)) - mine(y)).square().mean().backward();
  optimizer.step();
}

// The difference between the largest and the smallest bits over the ranks; as whole numbers, so that nothing is rounded.
bool same_on_all(cohort::collective::Communicator& comm, const at::Tensor& values) {
  const at::Tensor low = values.detach().view(at::kLong).clone(), high = low.clone();
  cohort::nn::all_reduce(comm, low, cohort::collective::Op::min);
  cohort::nn::all_reduce(comm, high, cohort::collective::Op::max);
  return at::equal(low, high);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: train_rank LANES");
  cohort::Job job = cohort::init();
  at::set_num_threads(1);
  auto net = make_net(), whole = make_net();
  if (job.rank().value > 0) {  // rank 0's values must reach the others
    const at::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.zero_();
  }
  torch::optim::Adam optimizer(net->parameters(), 0.01), reference(whole->parameters(), 0.01);
  cohort::DataParallel ddp(job, *net, {.bucket = cohort::ByteSize{4096}, .lanes = std::atoi(argv[1])});
  for (int number = 0; number < 10; ++number) {
    step(net, optimizer, number, job.rank().value, 1, job.size());
    step(whole, reference, number, 0, job.size(), job.size());
  }
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const at::Tensor mine = net->parameters()[i], plain = whole->parameters()[i];
    if (!at::allclose(mine, plain, 1e-9, 1e-11)) throw std::runtime_error("parameters differ from those of the whole batch");
    if (!same_on_all(job.comm(), mine)) throw std::runtime_error("ranks hold different bits");
  }
  std::printf("rank %d of %d over %s: equal\n", job.rank().value, job.size(), std::string(job.comm().transport()).c_str());
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
