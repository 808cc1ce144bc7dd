// The floating point types that training computes in or sends: fp32 (IEEE single), bf16 (its upper half: the same range, 8 bits of
// precision), fp16 (IEEE half: 11 bits of precision, 2^-24 .. 65504). Configurations name them with these words, in this order.
// Threads: values, any.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace cohort {

enum class Precision : std::uint8_t { fp32, bf16, fp16 };
inline constexpr std::array<std::string_view, 3> kPrecisionNames{"fp32", "bf16", "fp16"};
constexpr std::string_view name_of(Precision precision) { return kPrecisionNames[static_cast<std::size_t>(precision)]; }

}  // namespace cohort
