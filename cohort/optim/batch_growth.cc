#include "cohort/optim/batch_growth.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/error.h"

namespace cohort::optim {

GrownBatch grow_batch(double rate, double full, std::int64_t first_batch, std::int64_t most) {
  if (!(rate >= 0) || !(full > 0) || !std::isfinite(full) || first_batch < 1 || most < first_batch)
    throw_failure(Kind::usage, "batch growth: rate {} of {}, batch {} up to {}; rates are not negative, and the last batch is the largest",
                  rate, full, first_batch, most);
  const auto first = static_cast<double>(first_batch);
  const double wanted = rate > 0 ? std::round(first * full / rate) : INFINITY;
  const double batch = std::clamp(wanted, first, static_cast<double>(most));  // a rate above `full` shrinks no batch
  return {static_cast<std::int64_t>(batch), rate * batch / first};
}

double sgd_noise(double rate, double samples, double batch, double momentum) { return rate * samples / (batch * (1 - momentum)); }

}  // namespace cohort::optim
