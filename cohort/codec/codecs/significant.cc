// What matters (after Gaia's significance filter: Hsieh et al. 2017), measured against the tensor's own gradient.
//   C(x)_i = x_i where |x_i| > share rms(x) and |x_i| is among the k largest of its tensor's d, k = max(1, floor(cap d)); else 0
//   rms(x) = |x|_2 / sqrt(d); the largest element is always sent
// Gaia holds a sum of updates against the parameter's value, with a share that falls as 1 / sqrt(t). A gradient has no unit of its
// parameter: Adam divides it out, SGD's rate multiplies it. So it is held against the gradients of its tensor, which fall as training goes
// on, and a choice does not change with the learning rate, the loss scale or the rule. What is left out stays and adds up until it matters.
// Contraction: all that is not sent is below share rms, so 1 - share^2 where that is all; k / d where the cap is reached; 1 / d always.
// Bytes: 4 and 8 for every entry of a tensor, k entries at most: payloads are as long as what they hold (entries.h).
#include <cmath>

#include "cohort/codec/codecs/entries.h"
#include "cohort/codec/measure.h"

namespace cohort::codec {
namespace {

class Significant final : public SparseCodec {
 public:
  explicit Significant(const SpecValues& v) : SparseCodec(v.real("cap"), v.boolean("feedback")), share_(v.real("share")) {}
  bool variable() const override { return true; }
  double contraction(const Layout& layout) const override {
    double least = 1;
    for (const TensorPlace& t : layout.tensors)
      if (t.count > 0) least = std::min(least, std::max(1.0 / static_cast<double>(t.count), 1 - share_ * share_));
    return std::min(least, least_share(layout));
  }

 private:
  Threshold choose(const float* x, std::size_t count, std::size_t most) const override {
    const Threshold capped = largest(x, count, most);
    const double rms = std::sqrt(sum_of_squares(x, count) / static_cast<double>(count));
    if (!std::isfinite(share_ * rms)) return capped;
    const auto value = static_cast<float>(share_ * rms);
    if (largest_magnitude(x, count) <= magnitude(value)) return largest(x, count, 1);
    return narrower(capped, {magnitude(value), 0});
  }
  const double share_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{"significant",
                                 "the elements of every tensor that are larger than a share of its root mean square, with their places",
                                 {{.name = "share",
                                   .type = Type::real,
                                   .doc = "magnitudes above so many root mean squares are sent",
                                   .preset = "2",
                                   .low = 0,
                                   .high = 1e6},
                                  entries_cap(),
                                  entries_feedback()}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Significant>(values); }

}  // namespace

extern const CodecRow row_significant{.name = "significant", .schema = schema, .make = build};

}  // namespace cohort::codec
