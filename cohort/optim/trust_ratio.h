// How much of a step a tensor takes, by the sizes of its weights and of the step: what the layer-wise rules share.
#pragma once
#include <cmath>

namespace cohort::optim {

// |w| / |step|; 1 where one of them is zero, as for a layer that starts at zero, or has overflowed.
inline double trust_ratio(double weights, double step) {
  const double ratio = weights / step;
  return weights > 0 && step > 0 && std::isfinite(ratio) && ratio > 0 ? ratio : 1;
}

}  // namespace cohort::optim
