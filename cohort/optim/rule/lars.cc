// LARS (You, Gitman, Ginsburg 2017), in the paper's form; norms are those of the whole tensor:
//   ratio = trust |w| / (|g| + weight_decay |w| + eps),   1 where w or g is zero
//   b <- momentum b + ratio (g + weight_decay w),   w <- w - lr b
// Law: without weight decay and eps a tensor's first step is lr trust |w| long, whatever the size of its gradient.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/trust_ratio.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T rate, ratio, decay, momentum;
  COHORT_INLINE void operator()(T& w, T g, T& b) const { w -= rate * (b = momentum * b + ratio * (g + decay * w)); }
};

class Lars : public Optimizer {
 public:
  explicit Lars(const SpecValues& v)
      : lr_(v.real("lr")), momentum_(v.real("momentum")), trust_(v.real("trust")), eps_(v.real("eps")), decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  Needs needs() const override { return {.rounds = 1, .per_tensor = 2}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void add_sums(int, const Slice& s, const StepInfo&, std::span<ExactSum> sums) const override {
    add_squares(s.param, s.count, s.dtype, sums[0]);
    add_squares(s.grad, s.count, s.dtype, sums[1]);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double weights = std::sqrt(s.sums[0]), gradient = std::sqrt(s.sums[1]) * std::abs(info.grad_scale);
    const bool adapts = weights > 0 && gradient > 0;
    const double ratio = adapts ? trust_ratio(trust_ * weights, gradient + s.weight_decay * weights + eps_) : 1;
    with_real(s.dtype, [&](auto zero) {
      const auto t = [](double x) { return static_cast<decltype(zero)>(x); };
      for_each_element<decltype(zero), 1>(Pass<decltype(zero)>{t(info.lr * s.lr_scale), t(ratio), t(s.weight_decay), t(momentum_)}, s,
                                          info);
    });
  }
  double lr_, momentum_, trust_, eps_, decay_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "lars",
      "momentum whose step is in proportion to the size of each tensor, for large batches",
      {lr_param("1"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0.9", .low = 0, .high = 1},
       {.name = "trust",
        .type = Type::real,
        .doc = "length of a step at rate 1, as a share of the tensor's norm",
        .preset = "0.001",
        .low = 0},
       {.name = "eps", .type = Type::real, .doc = "added to the norm of the gradient", .preset = "1e-8", .low = 0},
       weight_decay_param("0", "added to the gradient, times w, before it is scaled")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Lars>(values); }

}  // namespace

extern const Rule row_lars{.name = "lars", .schema = schema, .make = build};

}  // namespace cohort::optim
