// Natural compression (Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019): every element by chance to one of the two powers of two next to
// it.
//   C(x) = sign(x) 2^e, or 2^(e + 1) with probability |x| / 2^e - 1, where 2^e <= |x| < 2^(e + 1)
// That is: a random number below 2^23 is added to the bits of |x|, and the mantissa dropped; below 2^-126 the two are 0 and 2^-126, and
// the same addition is right. Unbiased; E |C(x) - x|^2 <= |x|^2 / 8. Nine bits an element: n + ceil(n / 8) bytes for a block of n <= 256.
// From 2^127 on C(x) may be inf, and the step's vote skips the step.
#include "cohort/codec/codecs/blockwise.h"
#include "cohort/codec/codecs/pack.h"

namespace cohort::codec {
namespace {

struct ExponentByChance {
  const float* x;
  const std::uint32_t* words;
  std::byte* to;
  COHORT_INLINE void operator()(std::size_t i) const {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7fffffffu;
    const std::uint32_t finite = (magnitude + (words[i] >> 9)) >> 23;
    to[i] = static_cast<std::byte>(magnitude >= 0x7f800000u ? 255u : finite);
  }
};
struct PowerOfTwo {
  const std::byte* from;
  const std::int8_t* signs;
  float* x;
  COHORT_INLINE void operator()(std::size_t i) const {
    const std::uint32_t sign = static_cast<std::uint32_t>(static_cast<std::int32_t>(signs[i])) << 31;
    x[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[i]) << 23 | sign);
  }
};

class Natural final : public Blockwise {
 public:
  bool feedback() const override { return false; }
  bool unbiased() const override { return true; }
  double contraction(const Layout&) const override { return 0; }

 private:
  std::size_t block_bytes(std::size_t count) const override { return count + packed_bytes(count, 1); }
  void encode_block(const float* x, std::size_t count, const Draws& draws, std::byte* to) const override {
    Draws::Words words;  // NOLINT: written before it is read
    draws.words(words);
    for_each_index(ExponentByChance{x, words.data(), to}, count);
    pack_signs(x, count, to + count);
  }
  bool is_block(const std::byte*, std::size_t) const override { return true; }  // every byte is an exponent, or signs
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    Codes signs;  // NOLINT: written before it is read
    unpack<1>(from + count, count, signs);
    for_each_index(PowerOfTwo{from, signs.data(), x}, count);
  }
};

const SpecSchema& schema() {
  static const SpecSchema schema{"natural", "nine bits an element: a power of two next to it, by chance, so that the mean is right", {}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues&) { return std::make_unique<Natural>(); }

}  // namespace

extern const CodecRow row_natural{.name = "natural", .schema = schema, .make = build};

}  // namespace cohort::codec
