// TernGrad (Wen et al. 2017): -1, 0 or 1 times the largest magnitude s of a block of n <= 256, by chance.
//   C(x)_i = s sign(x_i) [r_i < |x_i| / s]      s = max |x| as bf16, rounded up      r_i uniform in [0, 1)
// With clip=c (2.5 in the paper) elements are cut to c sigma first, sigma = |x|_2 / sqrt(n): s is smaller, and so is the noise; the mean is
// then that of the cut elements. Without it: unbiased. Bytes: levels.h, two bits an element. Ranks need not share s: owners add in fp32.
#include <cmath>

#include "cohort/codec/codecs/levels.h"

namespace cohort::codec {
namespace {

class Terngrad final : public Levels {
 public:
  explicit Terngrad(const SpecValues& v) : Levels(1), clip_(v.real("clip")) {}
  bool unbiased() const override { return clip_ == 0; }
  double contraction(const Layout&) const override { return 0; }

 private:
  Norm norm(const float* x, std::size_t count, float largest) const override {
    if (clip_ == 0) return {.value = static_cast<double>(largest)};
    const auto limit = static_cast<float>(clip_ * std::sqrt(sum_of_squares(x, count) / static_cast<double>(count)));
    return {.value = static_cast<double>(std::min(largest, limit)), .limit = limit};
  }
  const double clip_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "terngrad",
      "two bits an element: the largest magnitude of a block of 256, its negative, or zero, so that the mean is right",
      {{.name = "clip",
        .type = SpecParam::Type::real,
        .doc = "cut elements to so many standard deviations of their block first, 2.5 in the paper; 0: do not",
        .preset = "0",
        .low = 0,
        .high = 100}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Terngrad>(values); }

}  // namespace

extern const CodecRow row_terngrad{.name = "terngrad", .schema = schema, .make = build};

}  // namespace cohort::codec
