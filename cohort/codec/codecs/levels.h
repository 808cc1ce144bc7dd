// Elements rounded by chance to whole multiples of a unit u, so that the mean is right: what qsgd and terngrad share.
//   C(x)_i = u sign(x_i) (l + [r < a - l])      a = |x_i| / u, l = floor(a), r uniform in [0, 1)      u = N / s as bf16, rounded up
// N is a norm of the block, no less than its largest element, so there are s levels. Rounding u up keeps that, and the mean is right for
// any u; u l is exact. Bytes: 2 + ceil(n b / 8) for a block of n <= 256, b = 2 bits for one level, 4 up to 7, 8 up to 127. With
// elias a block has the Elias code of its levels instead (elias.h), where that is shorter: the highest bit of its unit says so.
#pragma once
#include <limits>

#include "cohort/codec/codecs/blockwise.h"
#include "cohort/codec/codecs/elias.h"
#include "cohort/codec/codecs/pack.h"
#include "cohort/codec/codecs/scale.h"

namespace cohort::codec {

struct LevelByChance {
  const float* x;
  const std::uint32_t* words;
  std::int8_t* codes;
  float unit, most, limit;  // most: levels; limit: of |x|
  COHORT_INLINE void operator()(std::size_t i) const {
    const auto bits = __builtin_bit_cast(std::uint32_t, x[i]);
    const float whole = __builtin_bit_cast(float, bits & 0x7fffffffu), magnitude = whole < limit ? whole : limit;
    const float quotient = magnitude / unit, level = quotient < most ? quotient : most;
    const int low = static_cast<int>(level);
    const bool up = static_cast<float>(static_cast<int>(words[i] >> 8)) * 0x1p-24F < level - static_cast<float>(low);
    const int code = low + (up ? 1 : 0), sign = static_cast<std::int32_t>(bits) >> 31;
    codes[i] = static_cast<std::int8_t>((code ^ sign) - sign);
  }
};
struct TimesUnit {
  const std::int8_t* codes;
  float* x;
  float unit;
  COHORT_INLINE void operator()(std::size_t i) const { x[i] = static_cast<float>(codes[i]) * unit; }
};

class Levels : public Blockwise {
 public:
  struct Norm {
    double value = 0;
    float limit = std::numeric_limits<float>::infinity();  // larger elements are cut to it
  };
  explicit Levels(int levels, bool elias = false) : levels_(levels), bits_(levels == 1 ? 2 : levels <= 7 ? 4 : 8), elias_(elias) {}
  bool feedback() const override { return false; }
  bool variable() const override { return elias_; }

 private:
  static constexpr std::uint16_t kElias = 0x8000;                                 // a unit has no sign
  virtual Norm norm(const float* x, std::size_t count, float largest) const = 0;  // of a block that is finite

  std::size_t block_bytes(std::size_t count) const override { return 2 + packed_bytes(count, bits_); }
  void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const override {
    const std::uint32_t largest = largest_magnitude(x, count);
    const bool finite = largest < kInfinity;
    const Norm norm = finite ? this->norm(x, count, __builtin_bit_cast(float, largest)) : Norm{};
    const std::uint16_t unit = finite ? scale_above(norm.value / levels_) : kNoScale;
    to = put_scale(unit, to);
    if (unit == 0 || unit == kNoScale) return static_cast<void>(std::fill_n(to, packed_bytes(count, bits_), std::byte{0}));
    Draws::Words words;  // NOLINT: written before it is read
    draws.words(words);
    Codes codes;  // NOLINT: written before it is read
    for_each_index(LevelByChance{x, words.data(), codes.data(), from_bf16(unit), static_cast<float>(levels_), norm.limit}, count);
    if (elias_ && elias_encode(codes, count, to, packed_bytes(count, bits_) - 1) > 0) {
      put_scale(unit | kElias, to - 2);
      return;
    }
    if (bits_ == 2) return pack<2>(codes, count, to);
    if (bits_ == 4) return pack<4>(codes, count, to);
    std::memcpy(to, codes.data(), count);
  }
  bool is_block(const std::byte* from, std::size_t) const override { return is_scale(scale_at(from)); }
  std::size_t block_length(ConstBytes from, std::size_t count) const override {
    if (from.size() < 2 || (scale_at(from.data()) & kElias) == 0) return Blockwise::block_length(from, count);
    const std::uint16_t unit = scale_at(from.data()) & ~kElias;
    const std::size_t bytes = unit <= kLargestScale ? elias_decode(from.subspan(2), count, levels_, nullptr) : 0;
    return bytes == 0 || 2 + bytes >= block_bytes(count) ? 0 : 2 + bytes;
  }
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    Codes codes;  // NOLINT: written before it is read
    if (elias_ && (scale_at(from) & kElias) != 0) {
      elias_decode({from + 2, packed_bytes(count, bits_)}, count, levels_, codes.data());  // parsed before
      return for_each_index(TimesUnit{codes.data(), x, from_bf16(scale_at(from) & ~kElias)}, count);
    }
    if (bits_ == 2) unpack<2>(from + 2, count, codes);
    if (bits_ == 4) unpack<4>(from + 2, count, codes);
    if (bits_ == 8) std::memcpy(codes.data(), from + 2, count);
    for_each_index(TimesUnit{codes.data(), x, from_bf16(scale_at(from))}, count);
  }
  const int levels_, bits_;
  const bool elias_;
};

}  // namespace cohort::codec
