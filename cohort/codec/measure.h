// What codecs measure of a few elements, by loops of every instruction set of base/isa.h, with the same bits on each: sums are eight sums
// of every eighth element, in double, added in one order. Elements that are not finite make sums that are not. Threads: pure, any. Failure:
// none.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cohort::codec {

inline constexpr std::uint32_t kInfinity = 0x7f800000u;  // magnitudes from here on are not finite

std::uint32_t largest_magnitude(const float* x, std::size_t count);  // bits of the largest |x|, NaN above all; 0 of nothing
double sum_of_magnitudes(const float* x, std::size_t count);
double sum_of_squares(const float* x, std::size_t count);

// Of the elements with a sign and of the others.
struct BySign {
  double negative = 0, other = 0;  // sums of magnitudes
  double negatives = 0;            // how many
};
BySign sums_by_sign(const float* x, std::size_t count);

}  // namespace cohort::codec
