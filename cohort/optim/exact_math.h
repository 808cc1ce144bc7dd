// The few functions of the schedules and bias corrections, from correctly rounded operations only. libm chooses its pow and cos by
// processor, and two ranks whose learning rates differ in the last bit hold different models ever after.
#pragma once
#include <cmath>
#include <cstdint>

namespace cohort::optim {

// base^exponent, exponent >= 0, by squaring. Relative error below exponent * 2^-53.
constexpr double power(double base, std::int64_t exponent) {
  double result = 1;
  for (double square = base; exponent > 0; exponent >>= 1, square *= square)
    if ((exponent & 1) != 0) result *= square;
  return result;
}

// The natural logarithm of x > 0, absolute error below 1e-15 |result|: atanh's series in (m - 1) / (m + 1) with m between 0.7 and 1.5.
inline double real_log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  int twos = 0;
  double m = std::frexp(x, &twos);
  if (m < 0.7071) m *= 2, --twos;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int k = 27; k >= 1; k -= 2) series = series * square + 1.0 / k;
  return twos * kLn2 + 2 * s * series;
}

// base^exponent for base > 0, relative error below 1e-14 for results between 1e-30 and 1e30: 2^(exponent log2 base), the logarithm by
// atanh's series in (m - 1) / (m + 1) with m between 0.7 and 1.5, the power by exp's.
inline double real_power(double base, double exponent) {
  constexpr double kLn2 = 0.69314718055994530942;
  int twos = 0;
  double m = std::frexp(base, &twos);
  if (m < 0.7071) m *= 2, --twos;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int k = 27; k >= 1; k -= 2) series = series * square + 1.0 / k;
  const double bits = exponent * (twos + 2 * s * series / kLn2), whole = std::floor(bits + 0.5), rest = (bits - whole) * kLn2;
  double sum = 1;
  for (int k = 16; k >= 1; --k) sum = 1 + rest / k * sum;
  return std::ldexp(sum, static_cast<int>(whole));
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
