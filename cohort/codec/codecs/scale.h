// A block's scale in two bytes: a bf16 without a sign, or the NaN that says that the block is not finite. 8 bits of precision cost a mean a
// 256th at most, and a scale that may not be too small a 128th.
// Threads: pure, any. Failure: none.
#pragma once
#include <cmath>
#include <cstring>

#include "cohort/base/half.h"
#include "cohort/codec/codec.h"

namespace cohort::codec {

constexpr std::uint16_t kNoScale = 0x7fc0;  // NaN
constexpr std::uint16_t kLargestScale = 0x7f7f;

constexpr bool is_scale(std::uint16_t scale) { return scale <= kLargestScale || scale == kNoScale; }

// x >= 0, finite. To nearest, at most the largest bf16.
inline std::uint16_t nearest_scale(double x) { return std::min(to_bf16(static_cast<float>(x)), kLargestScale); }

// The smallest bf16 that is not less than x; kNoScale where there is none.
inline std::uint16_t scale_above(double x) {
  auto rounded = static_cast<float>(x);
  if (static_cast<double>(rounded) < x) rounded = std::nextafter(rounded, HUGE_VALF);
  const std::uint32_t bits = (__builtin_bit_cast(std::uint32_t, rounded) + 0xffffu) >> 16;
  return bits > kLargestScale ? kNoScale : static_cast<std::uint16_t>(bits);
}

inline std::byte* put_scale(std::uint16_t scale, std::byte* to) { return static_cast<std::byte*>(std::memcpy(to, &scale, 2)) + 2; }
inline std::uint16_t scale_at(const std::byte* from) {
  std::uint16_t scale = 0;
  std::memcpy(&scale, from, 2);
  return scale;
}

}  // namespace cohort::codec
