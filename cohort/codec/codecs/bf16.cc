// bfloat16, the upper half of an fp32, 2 bytes an element. C(x) = x rounded to 8 bits of precision, to nearest, ties to even.
// Bound: |x - C(x)| <= 2^-8 |x| for normal numbers; the range is that of fp32.
#include "cohort/codec/codecs/cast16.h"

namespace cohort::codec {
namespace {

struct Bf16 {
  static constexpr Dtype type = Dtype::bf16;
  static constexpr double unit = 0x1p-8;
  COHORT_INLINE static std::uint16_t narrow(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
  COHORT_INLINE static float widen(std::uint16_t x) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(x) << 16); }
};

const SpecSchema& schema() {
  static const SpecSchema schema{"bf16", "every element rounded to bf16: half the bytes, the range of fp32", {sum_param()}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Cast16<Bf16>>(values); }

}  // namespace

extern const CodecRow row_bf16{.name = "bf16", .schema = schema, .make = build};

}  // namespace cohort::codec
