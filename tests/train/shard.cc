// train_shard STAGE LANES: one rank of a loop with Sharded. It trains its part of every batch, and for itself the whole of it; both must
// end with the same parameters up to rounding. What the communicator counts must be what ZeRO says; over tcp the kernel's counters of the
// loopback device must have seen it.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "cohort/base/error.h"
#include "cohort/ddp/sharded.h"
#include "cohort/job/job.h"
#include "cohort/nn/unshard/unsharder.h"

namespace {

constexpr std::int64_t kRows = 6;  // of each rank
constexpr int kSteps = 5;

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(64, 1024)), out = register_module("out", torch::nn::Linear(1024, 256));
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(in(x))); }
  at::Tensor forward(cohort::Sharded& zero, const at::Tensor& x) {
    const at::Tensor hidden = zero.block("in", x, [this](const at::Tensor& t) { return torch::tanh(in(t)); });
    return zero.block("out", hidden, [this](const at::Tensor& t) { return out(t); });
  }
};

void fill(Net& net) {
  std::uint64_t seed = 1;
  const at::NoGradGuard no_grad;
  for (auto& p : net.parameters()) p.copy_(at::randn(p.sizes(), at::detail::createCPUGenerator(seed++)) / 30);
}

at::Tensor loss_of(int number, int first, int parts, int of, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + number));
  const at::Tensor x = at::randn({of * kRows, 64}, generator), y = at::randn({of * kRows, 256}, generator);
  const auto mine = [&](const at::Tensor& t) { return t.slice(0, first * kRows, (first + parts) * kRows); };
  return (forward(mine(x)) - mine(y)).square().mean();
}

double sent_over_loopback() {  // bytes, by every process of this host
  std::ifstream file("/sys/class/net/lo/statistics/tx_bytes");
  double bytes = 0;
  file >> bytes;
  return bytes;
}

void need(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

// Everything is in the host's memory already.
void need_a_refusal(cohort::Job& job, cohort::ShardedOptions options, Net& net) {
  options.stage = 2;
  options.more = "offload=host";
  try {
    const cohort::Sharded copied(job, net, options);
  } catch (const cohort::Failure& failure) {
    return need(std::string(failure.what()).find("offload=file:FOLDER") != std::string::npos, failure.what());
  }
  need(false, "offload=host was taken for a module on the CPU");
}

}  // namespace

int main(int argc, char** argv) try {
  need(argc == 3, "usage: train_shard STAGE LANES");
  const int stage = std::atoi(argv[1]);
  cohort::Job job = cohort::init();
  at::set_num_threads(1);
  Net net, whole;
  fill(whole);
  if (job.rank().value == 0) fill(net);  // rank 0's values must reach the others
  double psi = 0;
  for (const auto& p : net.parameters()) psi += static_cast<double>(p.numel());
  cohort::ShardedOptions options{
      .stage = stage, .optimizer = "sgd(lr=0.5, momentum=0.9)", .bucket = cohort::ByteSize{100000}, .lanes = std::atoi(argv[2])};
  options.blocks = {{"in", net.in.ptr()}, {"out", net.out.ptr()}};
  need_a_refusal(job, options, net);
  cohort::Sharded zero(job, net, options);
  // Not Adam: it makes whole steps of gradients that are zero but for rounding.
  torch::optim::SGD reference(whole.parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  const auto moved = [&](cohort::collective::Collective verb) { return static_cast<double>(job.comm().moved(verb).elements); };
  const double before = moved(cohort::collective::Collective::reduce_scatter) + moved(cohort::collective::Collective::all_gather);
  job.comm().barrier();
  const double sent = sent_over_loopback();
  job.comm().barrier();
  for (int number = 0; number < kSteps; ++number) {
    loss_of(number, job.rank().value, 1, job.size(), [&](const at::Tensor& x) { return net.forward(zero, x); }).backward();
    need(zero.step().committed, "a step was called off");
    reference.zero_grad();
    loss_of(number, 0, job.size(), job.size(), [&](const at::Tensor& x) { return whole.forward(x); }).backward();
    reference.step();
  }
  double mine = moved(cohort::collective::Collective::reduce_scatter) + moved(cohort::collective::Collective::all_gather) - before;
  job.comm().all_reduce(cohort::collective::piece(std::span(&mine, 1)), cohort::collective::Op::average);
  const double law = (stage == 3 ? 3 : 2) * psi * (job.size() - 1) / job.size() * kSteps;
  need(mine == law, "the ranks did not move what ZeRO says");
  job.comm().barrier();
  const double seen = sent_over_loopback() - sent;
  if (job.comm().transport() == "tcp" && job.size() > 1) need(seen >= 4 * law * job.size(), "the kernel has seen less than was moved");
  zero.engine().make_whole();
  for (std::size_t i = 0; i < net.parameters().size(); ++i)
    need(at::allclose(net.parameters()[i], whole.parameters()[i], 1e-4, 1e-5), "parameters differ from those of the whole batch");
  std::printf("rank %d of %d over %s: equal; moved %.0f elements, the kernel saw %.2f bytes for each 4 of them\n", job.rank().value,
              job.size(), std::string(job.comm().transport()).c_str(), mine, seen / (law * job.size()));
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
