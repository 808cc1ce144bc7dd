// Sharded training that stops and goes on, on another number of ranks and at another stage of ZeRO.
//   cohort run -n 2 05_resume_sharded runs/own 30 1        until 30 updates are made, stage 1
//   cohort run -n 3 05_resume_sharded runs/own 60 3        goes on from there with three ranks, stage 3
// Without arguments it does both after one another, on the ranks it was started with, in a folder that it removes.
#include <cohort/base/file.h>
#include <cohort/cohort.h>
#include <cohort/ddp/sharded.h>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kWidth = 256, kBatch = 120;  // kBatch: of all ranks together
constexpr int kEvery = 10;                                                        // updates between checkpoints

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kPixels, kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, kClasses));

  at::Tensor forward(cohort::Sharded& zero, at::Tensor x) {
    x = zero.block("in", x, [this](const at::Tensor& t) { return torch::relu(in(t)); });
    return zero.block("out", x, [this](const at::Tensor& t) { return out(t); });
  }
};

// The batch of an update is the same on any number of ranks; each has its part of it.
at::Tensor loss_of(Net& net, cohort::Sharded& zero, std::int64_t update, std::int64_t part, std::int64_t parts) {
  const at::Tensor patterns = at::randn({kClasses, kPixels}, at::detail::createCPUGenerator(1));
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(update));
  const at::Tensor labels = at::randint(kClasses, {kBatch}, generator, at::kLong);
  const at::Tensor images = patterns.index({labels}) + 6 * at::randn({kBatch, kPixels}, generator);
  const std::int64_t first = kBatch * part / parts, last = kBatch * (part + 1) / parts;
  return torch::nn::functional::cross_entropy(net.forward(zero, images.slice(0, first, last)), labels.slice(0, first, last));
}

// Goes on from what is in the folder, or begins there. The loss of the last update on this rank's part.
double train(cohort::Job& job, const std::string& folder, std::int64_t until, int stage) {
  Net net;
  cohort::ShardedOptions options{.stage = stage, .optimizer = "adamw(lr=1e-3)"};
  options.blocks = {{"in", net.in.ptr()}, {"out", net.out.ptr()}};
  options.groups = {{.parameters = {"*.bias"}, .weight_decay = 0}};
  cohort::Sharded zero(job, net, options);
  const auto resumed = zero.load(folder);
  double last = 0;
  while (zero.updates() < until) {
    const at::Tensor loss = loss_of(net, zero, zero.updates(), job.rank().value, job.size());
    loss.backward();
    zero.step();
    last = loss.item<double>();
    if (zero.updates() % kEvery == 0 || zero.updates() == until) zero.save(folder);
  }
  if (job.rank().value == 0)
    std::printf("%d ranks, stage %d: %s update %lld, until %lld; loss %.3f\n", job.size(), stage, resumed ? "went on from" : "began at",
                static_cast<long long>(resumed.value_or(0)), static_cast<long long>(until), last);
  return last;
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  at::set_num_threads(job.suggested_threads());
  torch::manual_seed(7);
  if (argc > 2) {
    train(job, argv[1], std::atoll(argv[2]), argc > 3 ? std::atoi(argv[3]) : 1);
    return 0;
  }
  std::unique_ptr<cohort::TempDir> made;  // by rank 0, which tells the others its name
  std::array<std::int64_t, 32> name{};
  if (job.rank().value == 0) {
    made = std::make_unique<cohort::TempDir>();
    made->path().copy(reinterpret_cast<char*>(name.data()), sizeof name - 1);
  }
  job.comm().broadcast(cohort::collective::piece(std::span<std::int64_t>(name)), cohort::Rank{0});
  const std::string folder(reinterpret_cast<const char*>(name.data()));
  const double first = train(job, folder, 20, 1), second = train(job, folder, 60, 3);
  if (!(second < first)) throw std::runtime_error("it did not go on learning");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
