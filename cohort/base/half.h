// 16-bit floats by integer arithmetic: f16 is IEEE binary16, bf16 the upper half of an f32. Narrowing rounds to nearest even;
// a NaN comes out quiet with the upper bits of its payload, exactly as the F16C instructions do it.
// The templates work on one number (F = float, U = uint32_t) and on vectors of them alike.
// Threads: pure, any. Failure: none.
#pragma once
#include <cstdint>

namespace cohort {

// Always inlined: files compiled for wider instruction sets use these, and must not leave copies the linker could pick for all files.
template <class F, class U>
[[gnu::always_inline]] constexpr inline F widen_f16(U half) {
  constexpr std::uint32_t kSpecial = 0x7c00u << 13;      // exponent of infinity and NaN, in place
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;  // f16 counts exponents from 15, f32 from 127
  constexpr std::uint32_t kSubnormal = kRebias + (1u << 23);
  const U zero = half & 0u;
  const U magnitude = (half & 0x7fffu) << 13;
  const U exponent = magnitude & kSpecial;
  const U normal = magnitude + kRebias;
  const U special = magnitude + 2 * kRebias;  // two steps reach exponent 255
  const U quiet = (magnitude & 0x7fffffu) != zero ? special | 0x400000u : special;
  // Read as 2^-14 * 1.mantissa, less 2^-14: exact, and right for zero too.
  const U tiny = __builtin_bit_cast(U, __builtin_bit_cast(F, magnitude + kSubnormal) - __builtin_bit_cast(F, zero + kSubnormal));
  const U finite = exponent == zero ? tiny : normal;
  const U bits = exponent == zero + kSpecial ? quiet : finite;
  return __builtin_bit_cast(F, bits | ((half & 0x8000u) << 16));
}

template <class F, class U>
[[gnu::always_inline]] constexpr inline U narrow_f16(F wide) {
  constexpr std::uint32_t kOverflow = (127u + 16u) << 23;                   // 2^16 and up cannot round to a finite f16
  constexpr std::uint32_t kNormal = (127u - 14u) << 23;                     // below 2^-14 lie the subnormals
  constexpr std::uint32_t kAlign = ((127u - 15u) + (23u - 10u) + 1) << 23;  // adding it leaves the subnormal's bits at the bottom, rounded
  const U all = __builtin_bit_cast(U, wide);
  const U magnitude = all & 0x7fffffffu;
  const U zero = all & 0u;
  const U normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const U tiny = __builtin_bit_cast(U, __builtin_bit_cast(F, magnitude) + __builtin_bit_cast(F, zero + kAlign)) - kAlign;
  const U finite = magnitude < zero + kNormal ? tiny : normal;
  const U nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const U special = magnitude > zero + 0x7f800000u ? nan : zero + 0x7c00u;
  const U bits = magnitude >= zero + kOverflow ? special : finite;
  return bits | ((all >> 16) & 0x8000u);
}

constexpr float from_f16(std::uint16_t half) { return widen_f16<float>(static_cast<std::uint32_t>(half)); }
constexpr std::uint16_t to_f16(float wide) { return static_cast<std::uint16_t>(narrow_f16<float, std::uint32_t>(wide)); }

constexpr float from_bf16(std::uint16_t half) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(half) << 16); }
constexpr std::uint16_t to_bf16(float wide) {
  const auto bits = __builtin_bit_cast(std::uint32_t, wide);
  if (wide != wide) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace cohort
