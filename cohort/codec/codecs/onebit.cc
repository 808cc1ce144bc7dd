// One bit an element (Seide, Fu, Droppo, Li, Yu 2014: 1-bit SGD), two means for a block of 256:
//   C(x)_i = the mean of the block's elements without a sign, or of those with one, whichever x_i has; as bf16
// Bytes: 4 + ceil(n / 8) for a block of n. The block's sum stays what it was, but for the means' rounding: a 256th of sum |x| at most.
// Contraction: |x|^2 falls by n m^2 for n elements of mean m: a 256th of it where one element is all there is. So a residual is kept; it
// is rounded as any fp32 sum, for an element may be far smaller than the mean that is taken from it.
// Seide's columns are blocks here, as the sum that owners encode again is not there tensor by tensor.
#include "cohort/codec/codecs/blockwise.h"
#include "cohort/codec/codecs/pack.h"
#include "cohort/codec/codecs/scale.h"

namespace cohort::codec {
namespace {

class Onebit final : public Blockwise {
 public:
  explicit Onebit(const SpecValues& v) : feedback_(v.boolean("feedback")) {}
  bool feedback() const override { return feedback_; }
  bool exact() const override { return false; }
  double contraction(const Layout&) const override {
    return (1 - 0x1p-16) / static_cast<double>(kBlock);
  }  // 2^-16: the means' rounding, squared

 private:
  std::size_t block_bytes(std::size_t count) const override { return 4 + packed_bytes(count, 1); }
  void encode_block(const float* x, std::size_t count, const Draws&, std::byte* to) const override {
    if (largest_magnitude(x, count) >= kInfinity) {
      std::fill_n(put_scale(kNoScale, put_scale(kNoScale, to)), packed_bytes(count, 1), std::byte{0});
      return;
    }
    const BySign sums = sums_by_sign(x, count);
    const double others = static_cast<double>(count) - sums.negatives;
    to = put_scale(sums.negatives > 0 ? nearest_scale(sums.negative / sums.negatives) : std::uint16_t{0}, to);
    to = put_scale(others > 0 ? nearest_scale(sums.other / others) : std::uint16_t{0}, to);
    pack_signs(x, count, to);
  }
  bool is_block(const std::byte* from, std::size_t) const override { return is_scale(scale_at(from)) && is_scale(scale_at(from + 2)); }
  void decode_block(const std::byte* from, std::size_t count, float* x) const override {
    unpack_signs(from + 4, count, -from_bf16(scale_at(from)), from_bf16(scale_at(from + 2)), x);
  }
  const bool feedback_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "onebit",
      "one bit an element: the mean of the negative elements of a block of 256, or that of the others",
      {{.name = "feedback", .type = SpecParam::Type::boolean, .doc = "keep what is not sent, and send it later", .preset = "true"}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Onebit>(values); }

}  // namespace

extern const CodecRow row_onebit{.name = "onebit", .schema = schema, .make = build};

}  // namespace cohort::codec
