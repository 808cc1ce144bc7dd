// IEEE binary16, 2 bytes an element. C(x) = x rounded to 11 bits of precision, to nearest, ties to even.
// Bound: |x - C(x)| <= 2^-11 |x| from 2^-14 on, 2^-25 below. What fp16 cannot hold, 65520 and more, becomes inf: the step's vote skips it,
// and a loss scale comes down. (Clamping to 65504, as hivemind does, would train on a wrong gradient in silence.)
#include "cohort/codec/codecs/cast16.h"

namespace cohort::codec {
namespace {

struct Fp16 {
  static constexpr Dtype type = Dtype::f16;
  static constexpr double unit = 0x1p-11;
  COHORT_INLINE static std::uint16_t narrow(float x) { return static_cast<std::uint16_t>(narrow_f16<float, std::uint32_t>(x)); }
  COHORT_INLINE static float widen(std::uint16_t x) { return widen_f16<float>(static_cast<std::uint32_t>(x)); }
};

const SpecSchema& schema() {
  static const SpecSchema schema{"fp16", "every element rounded to fp16; beyond 65504 it is inf, and the step is skipped", {sum_param()}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Cast16<Fp16>>(values); }

}  // namespace

extern const CodecRow row_fp16{.name = "fp16", .schema = schema, .make = build};

}  // namespace cohort::codec
