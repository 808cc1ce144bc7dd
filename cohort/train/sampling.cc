#include "cohort/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::train {

void check(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && std::isfinite(o.temperature)))
    throw_failure(Kind::usage, "temperature {} cannot be; 0 takes the likeliest token, 1 the model's own probabilities", o.temperature);
  if (o.top_k < 0) throw_failure(Kind::usage, "top-k {} cannot be; 0 keeps all tokens", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1))
    throw_failure(Kind::usage, "top-p {} cannot be; it is above 0 and at most 1, which keeps all", o.top_p);
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& o, data::Rng& rng) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t i) { return static_cast<double>(logits[static_cast<std::size_t>(i)]); };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (o.temperature == 0) return order.front();
  if (o.top_k > 0 && o.top_k < std::ssize(order)) order.resize(static_cast<std::size_t>(o.top_k));
  std::vector<double> weights;
  for (const std::int64_t i : order) weights.push_back(std::exp((logit(i) - logit(order.front())) / o.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t kept = 0;
  double sum = 0;
  while (kept < weights.size() && (kept == 0 || sum < o.top_p * total)) sum += weights[kept++];
  double left = rng.uniform() * sum;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    if (left < weights[i]) return order[i];
    left -= weights[i];
  }
  return order[kept - 1];
}

}  // namespace cohort::train
