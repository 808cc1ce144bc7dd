// A training loop whose ranks train together in the way that the arguments say, with one of Cohort's optimizers and a learning rate of its
// own in every step.
//   cohort run -n 2 06_strategies "diloco(h=5)"                    models are exchanged, every five steps
//   cohort run -n 2 06_strategies all_reduce "topk(ratio=0.05)"    gradients are, in fewer bytes
// Without arguments it does two of them after one another. Data: ten patterns of 28 x 28 under noise, made up here.
#include <cohort/cohort.h>
#include <cohort/ddp/data_parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kBatch = 128;  // kBatch: of all ranks together
constexpr int kSteps = 60;
constexpr double kRate = 0.05;

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kPixels, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, kClasses));
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(in(x))); }
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
  const Samples test = draw(999, 2000, 0, 1);
  return net.forward(test.images).argmax(1).eq(test.labels).to(at::kDouble).mean().item<double>();
}

void train(cohort::Job& job, const std::string& strategy, const std::string& codec) {
  torch::manual_seed(7);
  Net net;
  cohort::DataParallel ddp(job, net, {.strategy = strategy, .codec = codec, .optimizer = "sgd(lr=0.05, momentum=0.9)"});
  for (int step = 0; step < kSteps; ++step) {
    ddp.set_lr(kRate * (1 - static_cast<double>(step) / kSteps));  // before backward: codecs keep what they do not send, by this rate
    const Samples mine = draw(static_cast<std::uint64_t>(step), kBatch, job.rank().value, job.size());
    torch::nn::functional::cross_entropy(net.forward(mine.images), mine.labels).backward();
    ddp.step();  // update, and meet the others when it is due
  }
  const auto consensus = ddp.consensus();  // where every rank has a model of its own: the one that they stand for
  const double right = accuracy(net);
  if (job.rank().value == 0)
    std::printf("%s, codec %s: %.1f %% right on %d rank(s)\n", strategy.c_str(), codec.c_str(), 100 * right, job.size());
  if (right < 0.9) throw std::runtime_error("it did not learn");
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  at::set_num_threads(job.suggested_threads());
  if (argc > 1) {
    train(job, argv[1], argc > 2 ? argv[2] : "none");
    return 0;
  }
  train(job, "local_sgd(h=4)", "none");
  train(job, "all_reduce", "topk(ratio=0.05)");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
