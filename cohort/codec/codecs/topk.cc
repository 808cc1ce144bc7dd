// The largest elements of every tensor, of d elements k = max(1, floor(ratio d)), the rest stays in the residual (Aji, Heafield 2017; Stich
// et al. 2018).
//   C(x)_i = x_i where |x_i| is among the k largest of its tensor (equal ones: the first), else 0
// Bytes: 4 + 8 k for a tensor (entries.h). Contraction: the smallest k / d. With ratio=1 everything is sent, and the sum has the bits of a
// canonical all-reduce.
#include "cohort/codec/codecs/entries.h"

namespace cohort::codec {
namespace {

class Topk final : public SparseCodec {
 public:
  explicit Topk(const SpecValues& v) : SparseCodec(v.real("ratio"), v.boolean("feedback")) {}
  double contraction(const Layout& layout) const override { return least_share(layout); }

 private:
  Threshold choose(const float* x, std::size_t count, std::size_t most) const override { return largest(x, count, most); }
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "topk",
      "the largest elements of every tensor, with their places",
      {{.name = "ratio", .type = Type::real, .doc = "share of a tensor's elements that is sent", .preset = "0.01", .low = 0, .high = 1},
       entries_feedback()}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Topk>(values); }

}  // namespace

extern const CodecRow row_topk{.name = "topk", .schema = schema, .make = build};

}  // namespace cohort::codec
