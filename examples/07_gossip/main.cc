// Gossip: every rank knows a part of the classes only, trains a model of its own, and meets a few neighbours. It prints how far the ranks'
// models are from each other, what a rank received, and how good the one model is that they stand for.
//   cohort run -n 4 07_gossip                             one after another: alone, on a ring, pairs that wait for nobody
//   cohort run -n 4 07_gossip "dpsgd(graph=exponential)"  any other strategy (docs/strategies.md)
// Data: ten patterns of 28 x 28 under noise, made up here; of rank r the classes r, r + n, r + 2 n, ..
#include <cohort/cohort.h>
#include <cohort/ddp/data_parallel.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kClasses = 10, kPixels = 784, kBatch = 64;  // kBatch: of a rank
constexpr int kSteps = 60;

struct Samples {
  at::Tensor images, labels;
};

// Of the classes that leave `rest` when divided by `of`.
Samples draw(std::uint64_t seed, std::int64_t count, std::int64_t rest, std::int64_t of) {
  const at::Tensor patterns = at::randn({kClasses, kPixels}, at::detail::createCPUGenerator(1));
  auto generator = at::detail::createCPUGenerator(seed);
  const std::int64_t mine = (kClasses - rest + of - 1) / of;
  const at::Tensor labels = at::randint(mine, {count}, generator, at::kLong) * of + rest;
  return {patterns.index({labels}) + 6 * at::randn({count, kPixels}, generator), labels};
}

std::vector<double> values_of(torch::nn::Linear& net) {
  std::vector<double> all;
  for (const at::Tensor& p : net->parameters()) {
    const at::Tensor flat = p.detach().to(at::kDouble).flatten();
    all.insert(all.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  return all;
}

// The mean over ranks of the squared distance from their mean.
double disagreement(cohort::Job& job, torch::nn::Linear& net) {
  const std::vector<double> own = values_of(net);
  std::vector<double> mean = own;
  job.comm().all_reduce(cohort::collective::piece(std::span(mean)), cohort::collective::Op::average);
  double squared = 0;
  for (std::size_t i = 0; i < own.size(); ++i) squared += (own[i] - mean[i]) * (own[i] - mean[i]);
  job.comm().all_reduce(cohort::collective::piece(std::span(&squared, 1)), cohort::collective::Op::average);
  return std::sqrt(squared);
}

double received(cohort::Job& job) {
  using cohort::collective::Collective;
  double bytes = 0;
  for (const auto what : {Collective::all_reduce, Collective::recv}) bytes += static_cast<double>(job.comm().moved(what).bytes);
  return bytes;
}

double train(cohort::Job& job, const std::string& strategy) {
  torch::manual_seed(7);
  torch::nn::Linear net(kPixels, kClasses);
  cohort::DataParallel ddp(job, net, {.strategy = strategy, .optimizer = "sgd(lr=0.02)"});
  const double before = received(job);
  for (int step = 0; step < kSteps; ++step) {
    const auto seed = static_cast<std::uint64_t>(step * job.size() + job.rank().value);
    const Samples mine = draw(seed, kBatch, job.rank().value % kClasses, std::min<std::int64_t>(job.size(), kClasses));
    torch::nn::functional::cross_entropy(net->forward(mine.images), mine.labels).backward();
    ddp.step();
  }
  const double bytes = (received(job) - before) / kSteps, apart = disagreement(job, net);
  const auto consensus = ddp.consensus();
  const at::NoGradGuard no_grad;
  const Samples test = draw(999'999, 2000, 0, 1);
  const double right = net->forward(test.images).argmax(1).eq(test.labels).to(at::kDouble).mean().item<double>();
  if (job.rank().value == 0)
    std::printf("%-28s %.1f %% right, models %.2e apart, %.0f kB received a step, %d rank(s)\n", strategy.c_str(), 100 * right, apart,
                bytes / 1000, job.size());
  return right;
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  at::set_num_threads(job.suggested_threads());
  double worst = 1;
  if (argc > 1) {
    worst = train(job, argv[1]);
  } else {
    train(job, "parallel_sgd");  // nobody meets anybody before the end
    for (const char* strategy : {"dpsgd(graph=ring)", "ad_psgd"}) worst = std::min(worst, train(job, strategy));
  }
  if (worst < 0.8) throw std::runtime_error("the ranks did not learn from each other");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
