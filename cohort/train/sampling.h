// The next token from a model's logits z:
//   p_i = exp(z_i / temperature) / sum_k exp(z_k / temperature);  temperature 0: the largest z, of equal ones the first
//   top_k > 0: of the k largest only;  top_p < 1: of the fewest likeliest whose sum reaches top_p (Holtzman et al. 2020)
// Computed in double and drawn from a Rng of data/random.h, so that a seed gives the same text on every machine whose logits are the same.
// Owner: values. Threads: any. Failure: Kind::usage for options that cannot be.
#pragma once
#include <cstdint>
#include <span>

#include "cohort/data/random.h"

namespace cohort::train {

struct SamplingOptions {
  double temperature = 1;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
};

void check(const SamplingOptions& options);
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, data::Rng& rng);

}  // namespace cohort::train
