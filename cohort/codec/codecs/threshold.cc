// What is larger than a value (Strom 2015; Dryden, Jacobs, Moon, Van Essen 2016), the largest of it where that is too much.
//   C(x)_i = x_i where |x_i| > value and |x_i| is among the k largest of its tensor's d, k = max(1, floor(cap d)); else 0
// Bytes: 4 and 8 for every entry of a tensor, k entries at most: payloads are as long as what they hold (entries.h). The cap is what a
// residual that was let grow cannot break: what it leaves out stays there. No contraction: of small gradients nothing is sent; but what is
// kept of an element is no more than the value, as long as the cap is not reached. The value is in units of the gradient as it is sent,
// with the loss scale, if there is one.
#include "cohort/codec/codecs/entries.h"

namespace cohort::codec {
namespace {

class ThresholdCodec final : public SparseCodec {
 public:
  explicit ThresholdCodec(const SpecValues& v)
      : SparseCodec(v.real("cap"), v.boolean("feedback")), value_(static_cast<float>(v.real("value"))) {}
  bool variable() const override { return true; }
  double contraction(const Layout&) const override { return 0; }

 private:
  Threshold choose(const float* x, std::size_t count, std::size_t most) const override {
    return narrower(largest(x, count, most), {magnitude(value_), 0});
  }
  const float value_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "threshold",
      "the elements of every tensor that are larger than a value, with their places",
      {{.name = "value", .type = Type::real, .doc = "magnitudes above it are sent", .preset = "0.001", .low = 0, .high = 1e30},
       entries_cap(),
       entries_feedback()}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<ThresholdCodec>(values); }

}  // namespace

extern const CodecRow row_threshold{.name = "threshold", .schema = schema, .make = build};

}  // namespace cohort::codec
