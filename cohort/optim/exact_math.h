// The few functions of the schedules and bias corrections, from correctly rounded operations only. libm chooses its pow and cos by
// processor, and two ranks whose learning rates differ in the last bit hold different models ever after.
#pragma once
#include <cstdint>

namespace cohort::optim {

// base^exponent, exponent >= 0, by squaring. Relative error below exponent * 2^-53.
constexpr double power(double base, std::int64_t exponent) {
  double result = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square)
    if ((exponent & 1) != 0) result *= square;
  return result;
}

// cos(pi x) for x in 0..1, absolute error below 1e-15: the Taylor series up to (pi/2)^24, mirrored at 1/2.
constexpr double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1 - x);
  constexpr double kPi = 3.14159265358979323846;
  const double square = kPi * x * (kPi * x);
  double sum = 1;
  for (int k = 24; k >= 2; k -= 2) sum = 1 - square / (k * (k - 1)) * sum;
  return sum;
}

}  // namespace cohort::optim
