// Scaled signs (Karimireddy, Rebjock, Stich, Jaggi 2019: EF-signSGD; both ways with residuals: Zheng, Huang, Kwok 2019), by blocks of n <=
// 256:
//   C(x) = s sign(x)      s = |x|_1 / n as bf16      sign(0) = 1
// Bytes: 2 + ceil(n / 8) for a block. Contraction: |x|_1^2 / (n |x|_2^2), a 256th where one element is all there is; without the residual
// signs need not converge (the paper's counterexamples). The residual is rounded as any fp32 sum, as that of onebit is.
#include "cohort/codec/codecs/blockwise.h"
#include "cohort/codec/codecs/pack.h"
#include "cohort/codec/codecs/scale.h"

namespace cohort::codec {
namespace {

class Sign final : public Blockwise {
 public:
  explicit Sign(const SpecValues& v) : feedback_(v.boolean("feedback")) {}
  bool feedback() const override { return feedback_; }
  bool exact() const override { return false; }
  double contraction(const Layout&) const override {
    return (1 - 0x1p-16) / static_cast<double>(kBlock);
  }  // 2^-16: the scale's rounding, squared

 private:
  std::size_t block_bytes(std::size_t count) const override { return 2 + packed_bytes(count, 1); }
  void encode_block(const float* x, std::size_t count, const Draws&, std::byte* to) const override {
    const bool finite = largest_magnitude(x, count) < kInfinity;
    to = put_scale(finite ? nearest_scale(sum_of_magnitudes(x, count) / static_cast<double>(count)) : kNoScale, to);
    pack_signs(x, count, to);
  }
  bool is_block(const std::byte* from, std::size_t) const override { return is_scale(scale_at(from)); }
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    const float scale = from_bf16(scale_at(from));
    unpack_signs(from + 2, count, -scale, scale, x);
  }
  const bool feedback_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "sign",
      "one bit an element: its sign, times the mean magnitude of a block of 256",
      {{.name = "feedback", .type = SpecParam::Type::boolean, .doc = "keep what is not sent, and send it later", .preset = "true"}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Sign>(values); }

}  // namespace

extern const CodecRow row_sign{.name = "sign", .schema = schema, .make = build};

}  // namespace cohort::codec
