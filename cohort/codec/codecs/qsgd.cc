// QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic 2017): every element by chance to one of the two of s levels next to it, by blocks of
// n <= 256 with a norm each.
//   C(x)_i = N sign(x_i) l_i / s,  l_i = floor(a_i) or one more, by chance, a_i = s |x_i| / N      N = |x|_2, or max |x| with norm=max
// Unbiased; E |C(x) - x|^2 <= min(n / s^2, sqrt(n) / s) |x|^2 for |x|_2 (the norm is rounded up by a 128th at most: levels.h has the
// bytes). elias=true: the paper's code, of as many bits as the levels need, so payloads have a length each.
#include <cmath>

#include "cohort/codec/codecs/levels.h"

namespace cohort::codec {
namespace {

class Qsgd final : public Levels {
 public:
  explicit Qsgd(const SpecValues& v) : Levels(static_cast<int>(v.integer("levels")), v.boolean("elias")), max_(v.word("norm") == "max") {}
  bool unbiased() const override { return true; }
  double contraction(const Layout&) const override { return 0; }

 private:
  Norm norm(const float* x, std::size_t count, float largest) const override {
    return {.value = max_ ? static_cast<double>(largest) : std::sqrt(sum_of_squares(x, count))};
  }
  const bool max_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "qsgd",
      "every element rounded by chance to one of a few levels of the norm of a block of 256, so that the mean is right",
      {{.name = "levels",
        .type = Type::integer,
        .doc = "levels of a magnitude: 1 takes 2 bits an element, up to 7 take 4, up to 127 take 8",
        .preset = "7",
        .low = 1,
        .high = 127},
       {.name = "norm",
        .type = Type::word,
        .doc = "the length of the block, as in the paper, or its largest element",
        .preset = "l2",
        .words = {"l2", "max"}},
       {.name = "elias",
        .type = Type::boolean,
        .doc = "levels in Elias code, which is short where most are 0: fewer bytes, more time",
        .preset = "false"}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Qsgd>(values); }

}  // namespace

extern const CodecRow row_qsgd{.name = "qsgd", .schema = schema, .make = build};

}  // namespace cohort::codec
