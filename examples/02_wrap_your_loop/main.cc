// An ordinary libtorch training loop, and the three lines (marked) that make it train on many ranks.
//   cohort run -n 2 02_wrap_your_loop          (also alone, or under torchrun, mpirun, srun)
// Data: ten patterns of 28 x 28 under noise, made up here so that nothing has to be downloaded.
#include <cohort/cohort.h>
#include <cohort/ddp/data_parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kBatch = 128;  // kBatch: of all ranks together
constexpr int kEpochs = 3, kSteps = 20;

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kPixels, 64));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, kClasses));
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(norm(in(x)))); }
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

double accuracy(Net& net) {
  const at::NoGradGuard no_grad;
  net.eval();
  const Samples test = draw(999, 2000, 0, 1);
  const double right = net.forward(test.images).argmax(1).eq(test.labels).to(at::kDouble).mean().item<double>();
  net.train();
  return right;
}

}  // namespace

int main() try {
  cohort::Job job = cohort::init();  // 1: who am I, who are the others
  at::set_num_threads(job.suggested_threads());
  torch::manual_seed(7);

  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  cohort::DataParallel ddp(job, net);  // 2: rank 0's parameters everywhere; from now on backward() averages gradients

  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    for (int step = 0; step < kSteps; ++step) {
      const auto seed = static_cast<std::uint64_t>(epoch * 1000 + step);
      const Samples mine = draw(seed, kBatch, job.rank().value, job.size());  // 3: every rank its own part of the batch
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(net.forward(mine.images), mine.labels);
      loss.backward();
      optimizer.step();
    }
    ddp.sync_buffers();  // running means of all ranks, so that all evaluate the same model
    const double right = accuracy(net);
    if (job.rank().value == 0) std::printf("epoch %d: %.1f %% right on %d rank(s)\n", epoch, 100 * right, job.size());
    if (epoch == kEpochs && right < 0.9) throw std::runtime_error("it did not learn");
  }
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
