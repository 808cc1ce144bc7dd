#include "cohort/codec/measure.h"

#include "cohort/base/isa.h"

namespace cohort::codec {
namespace {

COHORT_INLINE std::uint32_t bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
COHORT_INLINE float magnitude(float x) { return __builtin_bit_cast(float, bits(x) & 0x7fffffffu); }

struct Magnitude {
  COHORT_INLINE double operator()(float x) const { return static_cast<double>(magnitude(x)); }
};
struct Square {
  COHORT_INLINE double operator()(float x) const { return static_cast<double>(x) * static_cast<double>(x); }
};
struct NegativeMagnitude {  // -0 among them
  COHORT_INLINE double operator()(float x) const {
    return static_cast<double>(__builtin_bit_cast(float, bits(x) & (0u - (bits(x) >> 31)) & 0x7fffffffu));
  }
};
struct IsNegative {
  COHORT_INLINE double operator()(float x) const { return static_cast<double>(static_cast<int>(bits(x) >> 31)); }
};

constexpr std::size_t kLanes = 8;

template <class Term>
COHORT_INLINE double sum_loop(const float* x, std::size_t count, const Term& term) {
  double lanes[kLanes]{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += term(x[i + k]);
  for (std::size_t k = 0; i + k < count; ++k) lanes[k] += term(x[i + k]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}
template <class Term>
double sum_plain(const float* x, std::size_t count, const Term& term) {
  return sum_loop(x, count, term);
}
template <class Term>
COHORT_FOR_AVX2 double sum_avx2(const float* x, std::size_t count, const Term& term) {
  return sum_loop(x, count, term);
}
template <class Term>
double sum(const float* x, std::size_t count, const Term& term) {
  return current_isa() == Isa::avx2 ? sum_avx2(x, count, term) : sum_plain(x, count, term);
}

COHORT_INLINE std::uint32_t largest_loop(const float* x, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t own = bits(x[i]) & 0x7fffffffu;  // ordered as the numbers are, NaN above all
    most = own > most ? own : most;
  }
  return most;
}
std::uint32_t largest_plain(const float* x, std::size_t count) { return largest_loop(x, count); }
COHORT_FOR_AVX2 std::uint32_t largest_avx2(const float* x, std::size_t count) { return largest_loop(x, count); }

}  // namespace

std::uint32_t largest_magnitude(const float* x, std::size_t count) {
  return current_isa() == Isa::avx2 ? largest_avx2(x, count) : largest_plain(x, count);
}
double sum_of_magnitudes(const float* x, std::size_t count) { return sum(x, count, Magnitude{}); }
double sum_of_squares(const float* x, std::size_t count) { return sum(x, count, Square{}); }

BySign sums_by_sign(const float* x, std::size_t count) {
  const double negative = sum(x, count, NegativeMagnitude{});
  return {negative, sum(x, count, Magnitude{}) - negative, sum(x, count, IsNegative{})};
}

}  // namespace cohort::codec
