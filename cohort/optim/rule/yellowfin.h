// YellowFin's tuner: momentum and rate from what was measured of the gradient.
//   p = D^2 h_min^2 / (2 C),   x: the root of p x = (1 - x)^3 between 0 and 1,   k = h_max / h_min
//   mu = max(x^2, ((sqrt(k) - 1) / (sqrt(k) + 1))^2),   rate = (1 - sqrt(mu))^2 / h_min
// h: curvatures, which squared norms of the gradient stand for; C: its variance; D: how far the minimum is.
#pragma once
#include <algorithm>
#include <cmath>

namespace cohort::optim {

struct YellowFinTuned {
  double momentum, rate;
};

// p > 0. By halving the interval 0 .. min(1, 1/p), which has it.
inline double yellowfin_root(double p) {
  double low = 0, high = std::min(1.0, 1 / p);
  for (int i = 0; i < 60; ++i) {
    const double x = (low + high) / 2;
    (p * x < (1 - x) * (1 - x) * (1 - x) ? low : high) = x;
  }
  return (low + high) / 2;
}

inline YellowFinTuned yellowfin_tuned(double h_min, double h_max, double c, double d) {
  const double x = yellowfin_root(d * d * h_min * h_min / (2 * c)), k = std::sqrt(h_max / h_min), ratio = (k - 1) / (k + 1);
  const double mu = std::max(x * x, ratio * ratio), left = 1 - std::sqrt(mu);
  return {mu, left * left / h_min};
}

}  // namespace cohort::optim
