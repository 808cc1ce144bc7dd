// Deep gradient compression (Lin, Han, Mao, Wang, Dally 2018): topk of the velocity that every rank adds up by itself (feedback.h).
//   u <- m u + g        v <- v + u        send the k largest |v_i|        v_i <- 0, and u_i <- 0 (masking), of those that were sent
//   C(x)_i = x_i where |x_i| is among the k = max(1, floor(ratio d)) largest of its tensor, else 0
// u is the momentum, so the optimizer is sgd(momentum=0). Laws: ratio=1, masking=false is SGD with momentum; ratio=1 with masking is SGD
// without.
// clip: g is first cut to the length clip / sqrt(N) on each of N ranks, of what it adds to the result: a rank's part of a mean is g / N.
// By tensor, since a tensor travels before the others are known.
// warmup: while a run begins, more is sent. With L steps of a factor 4 between 1 and the ratio, of equal length, step s of `warmup` has
//   ratio(s) = max(ratio, 4^-(1 + floor((s - 1) L / warmup)))        25 %, 6.25 %, 1.5625 %, .. as in the paper
// Bytes: 4 + 8 k for a tensor (entries.h). The k largest are found exactly; the paper's sample of the elements is not needed for that.
#include <cmath>

#include "cohort/codec/codecs/entries.h"

namespace cohort::codec {
namespace {

constexpr double kFirstShare = 0.25;

int stages(double ratio) {  // how many powers of 1/4 are larger
  int count = 0;
  for (double share = kFirstShare; share > ratio && count < 32; share /= 4) ++count;
  return count;
}

class Dgc final : public SparseCodec {
 public:
  explicit Dgc(const SpecValues& v)
      : SparseCodec(v.integer("warmup") > 0 ? std::max(v.real("ratio"), kFirstShare) : v.real("ratio"), true),
        ratio_(v.real("ratio")),
        warmup_(v.integer("warmup")),
        momentum_{v.real("momentum"), v.boolean("nesterov"), v.boolean("masking"), v.real("clip")} {}
  bool variable() const override { return warmup_ > 0; }
  std::optional<Momentum> momentum() const override { return momentum_; }
  double contraction(const Layout& layout) const override { return least_share(layout, ratio_); }

 private:
  double share_at(std::int64_t step) const override {
    if (step > warmup_) return ratio_;
    const auto gone = static_cast<double>(std::max<std::int64_t>(step, 1) - 1);
    const double stage = std::floor(gone * stages(ratio_) / static_cast<double>(warmup_));
    return std::max(ratio_, std::pow(kFirstShare, 1 + stage));
  }
  Threshold choose(const float* x, std::size_t count, std::size_t most) const override { return largest(x, count, most); }

  const double ratio_;
  const std::int64_t warmup_;
  const Momentum momentum_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "dgc",
      "the largest elements of the velocity that every rank adds up by itself, with their places; for optimizer=sgd without momentum",
      {{.name = "ratio", .type = Type::real, .doc = "share of a tensor's elements that is sent", .preset = "0.01", .low = 0, .high = 1},
       {.name = "momentum", .type = Type::real, .doc = "share of the velocity kept", .preset = "0.9", .low = 0, .high = 1},
       {.name = "nesterov", .type = Type::boolean, .doc = "look one momentum step ahead", .preset = "false"},
       {.name = "masking", .type = Type::boolean, .doc = "what is sent loses its momentum", .preset = "true"},
       {.name = "clip",
        .type = Type::real,
        .doc = "norm that a tensor's gradient is clipped to, every rank its share of it, before it is added up; 0: not",
        .preset = "0",
        .low = 0},
       {.name = "warmup",
        .type = Type::integer,
        .doc = "steps at the start of a run in which the share falls from 25 % to ratio by factors of 4",
        .preset = "0",
        .low = 0,
        .high = 1e9}}};
  return schema;
}
std::unique_ptr<Codec> build(const SpecValues& values) { return std::make_unique<Dgc>(values); }

}  // namespace

extern const CodecRow row_dgc{.name = "dgc", .schema = schema, .make = build};

}  // namespace cohort::codec
