// Logistic regression over a million features of which a sample has twenty, with parameter servers: a rank reads the weights of the
// features in its batch, and pushes their gradients; nobody ever holds all of them.
//   cohort run -n 2 08_sparse_lr                 without a bound: nobody waits for anybody
//   cohort run -n 2 08_sparse_lr "ssp(2)"        no rank is more than two steps ahead of the slowest
// Adagrad runs on the servers, so features that are rare learn as fast as those that are not. Data: made up here; a hundred thousand
// features matter, each a little.
#include <cohort/cohort.h>
#include <cohort/ps/session.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kFeatures = 1'000'000;
constexpr int kPerSample = 20, kBatch = 256, kSteps = 400;

struct Batch {
  std::vector<std::uint64_t> features;  // kPerSample of each sample
  std::vector<float> labels;
};

// Features are rare in the way that words are: few come often. A weight of the truth is a hash of its feature.
Batch draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Batch batch;
  for (int i = 0; i < kBatch; ++i) {
    double score = 0;
    for (int k = 0; k < kPerSample; ++k) {
      const auto feature = static_cast<std::uint64_t>(std::pow(uniform(random), 6) * kFeatures);
      batch.features.push_back(feature);
      score += (feature * 0x9e3779b97f4a7c15ULL >> 63) != 0 ? 1 : -1;
    }
    batch.labels.push_back(score > 0 ? 1 : 0);
  }
  return batch;
}

// What the model says of every sample, and the share it is right on.
double predict(const Batch& batch, const std::vector<float>& weights, std::vector<float>& scores) {
  scores.assign(kBatch, 0);
  int right = 0;
  for (std::size_t i = 0; i < kBatch; ++i) {
    for (std::size_t k = 0; k < kPerSample; ++k) scores[i] += weights[i * kPerSample + k];
    right += (scores[i] > 0) == (batch.labels[i] > 0.5F) ? 1 : 0;
  }
  return static_cast<double>(right) / kBatch;
}

}  // namespace

int main(int argc, char** argv) try {
  cohort::Job job = cohort::init();
  cohort::ps::Session session(job.comm());
  cohort::ps::Client& client = session.client();
  const auto table =
      client.make_rows({.name = "weights", .width = 1, .rule = "adagrad(lr=0.3)", .clock = argc > 1 ? argv[1] : "tap", .average = false});

  std::vector<float> weights(kBatch * kPerSample), gradients(weights.size()), scores;
  double recent = 0.5;
  std::int64_t behind = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = draw(static_cast<std::uint64_t>(step * job.size() + job.rank().value));
    client.pull_rows(table, batch.features, weights);
    behind = std::max(behind, client.wait(table).behind());
    recent += 0.05 * (predict(batch, weights, scores) - recent);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::size_t sample = i / kPerSample;
      gradients[i] = (1 / (1 + std::exp(-scores[sample])) - batch.labels[sample]) / kBatch;
    }
    client.push_rows(table, batch.features, gradients);
    client.mark(table);
  }
  std::printf("rank %d: %.1f %% right on new samples of the last steps; reads were at most %lld steps behind\n", job.rank().value,
              100 * recent, static_cast<long long>(behind));
  if (recent < 0.7) throw std::runtime_error("it did not learn");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
