// A sum of numbers >= 0 that does not depend on their order: a fixed-point number wide enough for every double, so nothing is rounded until
// value() is asked for. Numbers may so be added by whichever rank holds them, in any order, and the limbs of all ranks added up: limbs are
// below 2^32, and sums of doubles below 2^53 are exact.
// Owner: a value. Threads: one. It never fails: a number that is not finite makes the sum infinite.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort::optim {

class ExactSum {
 public:
  // 2^-1074 .. 2^1024 are 2098 bits; the rest is room for 2^78 of the largest.
  static constexpr std::size_t kLimbs = 68;
  static constexpr std::size_t kWords = kLimbs + 1;  // and whether it is infinite

  void add(double number) {
    const auto bits = std::bit_cast<std::uint64_t>(number);
    const std::uint64_t exponent = bits >> 52, fraction = bits & ((1ULL << 52) - 1);
    if (exponent >= 2047) return void(infinite_ = true);  // and what is below zero
    const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;
    const auto wide = static_cast<unsigned __int128>(exponent == 0 ? fraction : fraction | 1ULL << 52) << (shift % 32);
    std::uint64_t* const limb = &limbs_[shift / 32];
    limb[0] += static_cast<std::uint32_t>(wide);
    limb[1] += static_cast<std::uint32_t>(wide >> 32);
    limb[2] += static_cast<std::uint32_t>(wide >> 64);
    if (++added_ == kBeforeCarry) carry();
  }
  void add(ExactSum other);

  // What was added up elsewhere as add() does: limbs of less than 2^64, and whether a number was not finite.
  void add_limbs(std::span<const std::uint64_t> limbs, bool infinite);

  double value() const;                                 // the nearest double to the leading 65 bits or more
  void write(std::span<double> words) const;            // kWords of them, to be summed over the ranks
  static ExactSum read(std::span<const double> words);  // what write() of all ranks added up to

 private:
  static constexpr std::uint32_t kBeforeCarry = 1U << 30;  // additions of less than 2^32 that a limb has room for
  void carry();

  std::array<std::uint64_t, kLimbs> limbs_{};  // of 2^-1074, base 2^32; above 2^32 between two carries
  std::uint32_t added_ = 0;
  bool infinite_ = false;
};

}  // namespace cohort::optim
