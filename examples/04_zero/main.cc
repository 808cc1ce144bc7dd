// A training loop whose optimizer state, gradients and parameters are sharded over the ranks (ZeRO, stage 3), and what each rank holds of
// them.
//   cohort run -n 2 04_zero          (also alone, or under torchrun, mpirun, srun; an argument 1, 2 or 3 says the stage)
// Data: ten patterns of 28 x 28 under noise, made up here so that nothing has to be downloaded.
#include <cohort/cohort.h>
#include <cohort/ddp/sharded.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kWidth = 256, kBatch = 128;  // kBatch: of all ranks together
constexpr int kSteps = 60;

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kPixels, kWidth));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, kClasses));

  // A block's parameters are gathered while it runs, and freed before the next one.
  at::Tensor forward(cohort::Sharded& zero, at::Tensor x) {
    x = zero.block("in", x, [this](const at::Tensor& t) { return torch::relu(in(t)); });
    x = zero.block("middle", x, [this](const at::Tensor& t) { return torch::relu(middle(t)); });
    return zero.block("out", x, [this](const at::Tensor& t) { return out(t); });
  }
};

struct Samples {
  at::Tensor images, labels;
};

// Sample i of a seed is the same whoever draws it; a batch of one rank is its part of the batch of all.
Samples draw(std::uint64_t seed, std::int64_t count, std::int64_t part, std::int64_t parts) {
  const at::Tensor patterns = at::randn({kClasses, kPixels}, at::detail::createCPUGenerator(1));
  auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor labels = at::randint(kClasses, {count}, generator, at::kLong);
  const at::Tensor images = patterns.index({labels}) + 6 * at::randn({count, kPixels}, generator);
  const std::int64_t first = count * part / parts, last = count * (part + 1) / parts;
  return {images.slice(0, first, last), labels.slice(0, first, last)};
}

double accuracy(Net& net, cohort::Sharded& zero) {
  const at::NoGradGuard no_grad;
  const Samples test = draw(999, 1000, 0, 1);
  return net.forward(zero, test.images).argmax(1).eq(test.labels).to(at::kDouble).mean().item<double>();
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  at::set_num_threads(job.suggested_threads());
  torch::manual_seed(7);

  Net net;
  std::int64_t parameters = 0;
  for (const auto& p : net.parameters()) parameters += p.numel();
  cohort::ShardedOptions options{.stage = argc > 1 ? std::atoi(argv[1]) : 3, .optimizer = "adamw(lr=1e-3)", .clip_norm = 1};
  options.blocks = {{"in", net.in.ptr()}, {"middle", net.middle.ptr()}, {"out", net.out.ptr()}};
  cohort::Sharded zero(job, net, options);  // rank 0's values, sharded

  for (int step = 1; step <= kSteps; ++step) {
    const Samples mine = draw(static_cast<std::uint64_t>(step), kBatch, job.rank().value, job.size());
    torch::nn::functional::cross_entropy(net.forward(zero, mine.images), mine.labels).backward();
    const auto verdict = zero.step();
    if (step % 20 == 0 && job.rank().value == 0) std::printf("step %d: gradient norm %.3f\n", step, std::sqrt(verdict.squared_after));
  }

  std::int64_t held = 0;  // elements of parameters and optimizer state that this rank keeps
  zero.engine().visit([&](const cohort::StateItem& item) { held += static_cast<std::int64_t>(item.run.count); });
  const double right = accuracy(net, zero);
  std::printf("rank %d: %.1f %% right; keeps %lld of %lld elements of parameters and state\n", job.rank().value, 100 * right,
              static_cast<long long>(held), static_cast<long long>(3 * parameters));
  if (right < 0.9) throw std::runtime_error("it did not learn");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
