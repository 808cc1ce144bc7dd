// DiLoCo: ranks train by themselves with AdamW for many steps, and an outer optimizer moves a common anchor along what all have moved. It
// prints loss and bytes beside those of all-reduce.
//   cohort run -n 2 08_diloco                               all_reduce, diloco, and diloco that waits for nobody
//   cohort run -n 2 08_diloco "diloco(h=20, wait=none)"     any other strategy (docs/strategies.md)
// Data: ten patterns of 28 x 28 under noise, made up here; every rank draws its own.
#include <cohort/cohort.h>
#include <cohort/ddp/data_parallel.h>
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kBatch = 64;
constexpr int kSteps = 80;

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kPixels, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, kClasses));
  at::Tensor forward(const at::Tensor& x) { return out(torch::relu(in(x))); }
};

struct Samples {
  at::Tensor images, labels;
};

Samples draw(std::uint64_t seed, std::int64_t count) {
  const at::Tensor patterns = at::randn({kClasses, kPixels}, at::detail::createCPUGenerator(1));
  auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor labels = at::randint(kClasses, {count}, generator, at::kLong);
  return {patterns.index({labels}) + 6 * at::randn({count, kPixels}, generator), labels};
}

double received(cohort::Job& job) {
  using cohort::collective::Collective;
  double bytes = 0;
  for (const auto what : {Collective::all_reduce, Collective::recv}) bytes += static_cast<double>(job.comm().moved(what).bytes);
  return bytes;
}

void train(cohort::Job& job, const std::string& strategy) {
  torch::manual_seed(7);
  Net net;
  cohort::DataParallel ddp(job, net, {.strategy = strategy, .optimizer = "adamw(lr=2e-3)"});
  const double before = received(job);
  for (int step = 0; step < kSteps; ++step) {
    const Samples mine = draw(static_cast<std::uint64_t>(step * job.size() + job.rank().value), kBatch);
    torch::nn::functional::cross_entropy(net.forward(mine.images), mine.labels).backward();
    ddp.step();  // AdamW's; and every h-th the outer step
  }
  const double bytes = (received(job) - before) / kSteps;
  const auto consensus = ddp.consensus();  // the anchor, on every rank
  const at::NoGradGuard no_grad;
  const Samples test = draw(999'999, 2000);
  const at::Tensor logits = net.forward(test.images);
  const double loss = torch::nn::functional::cross_entropy(logits, test.labels).item<double>();
  const double right = logits.argmax(1).eq(test.labels).to(at::kDouble).mean().item<double>();
  if (job.rank().value == 0)
    std::printf("%-28s test loss %.4f, %.1f %% right, %.1f kB received a step, %d rank(s)\n", strategy.c_str(), loss, 100 * right,
                bytes / 1000, job.size());
  if (right < 0.9) throw std::runtime_error("it did not learn");
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  at::set_num_threads(job.suggested_threads());
  if (argc > 1) {
    train(job, argv[1]);
    return 0;
  }
  for (const char* strategy : {"all_reduce", "diloco(h=10)", "diloco(h=10, wait=none)"}) train(job, strategy);
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
