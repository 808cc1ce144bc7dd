// LARS (You, Gitman, Ginsburg 2017); norms are those of the whole tensor. Three forms are in use, and they differ:
//   paper:       ratio = trust |w| / (|g| + weight_decay |w| + eps),   b <- momentum b + ratio (g + weight_decay w),   w <- w - lr b
//   gradient:    ratio = trust |w| / (|g| + eps),                      the same
//   tensorflow:  ratio = trust |w| / (|g + weight_decay w| + eps),     b <- momentum b + lr ratio (g + weight_decay w),   w <- w - b
// The ratio is 1 where w or g is zero (tensorflow: w or the sum).
// Laws: without weight decay and eps a tensor's first step is lr trust |w| long, whatever the size of its gradient; of tensorflow's form
// with weight decay too. At a constant rate where the rate stands makes no difference.
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
template <class T>
struct Sum {
  T decay;
  COHORT_INLINE void operator()(T& w, T g) const { w = g + decay * w; }
};

class Lars : public Optimizer {
 public:
  explicit Lars(const SpecValues& v)
      : lr_(v.real("lr")),
        momentum_(v.real("momentum")),
        trust_(v.real("trust")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        of_sum_(v.word("form") == "tensorflow"),
        of_gradient_(v.word("form") == "gradient") {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  Needs needs() const override { return of_sum_ ? Needs{.rounds = 2, .per_tensor = 1} : Needs{.rounds = 1, .per_tensor = 2}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void add_sums(int round, const Slice& s, const StepInfo& info, std::span<ExactSum> sums) const override {
    if (round == 0) add_squares(s, s.param, sums[0]);
    if (!of_sum_) return add_squares(s, s.grad, sums[1]);
    if (round == 0) return;  // the scale of gradients is not known before round 1
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      add_squares_after<T, 0>(Sum<T>{static_cast<T>(s.weight_decay)}, s, info, sums[0]);
    });
  }
  double ratio(const Slice& s, const StepInfo& info) const {
    const double weights = std::sqrt(s.sums[0]), measured = std::sqrt(s.sums[1]);
    const double gradient = of_sum_ ? measured : measured * std::abs(info.grad_scale);
    if (weights <= 0 || gradient <= 0) return 1;
    return trust_ratio(trust_ * weights, gradient + (of_sum_ || of_gradient_ ? 0 : s.weight_decay * weights) + eps_);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double lr = info.lr * s.lr_scale, inside = of_sum_ ? lr : 1, outside = of_sum_ ? 1 : lr;
    with_real(s.dtype, [&](auto zero) {
      const auto t = [](double x) { return static_cast<decltype(zero)>(x); };
      for_each_element<decltype(zero), 1>(Pass<decltype(zero)>{t(outside), t(inside * ratio(s, info)), t(s.weight_decay), t(momentum_)}, s,
                                          info);
    });
  }
  double lr_, momentum_, trust_, eps_, decay_;
  bool of_sum_, of_gradient_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "lars",
      "momentum whose step is in proportion to the size of each tensor, for large batches",
      {lr_param("1"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0.9", .low = 0, .high = 1},
       number_param("trust", "0.001", "length of a step at rate 1, as a share of the tensor's norm"),
       number_param("eps", "1e-8", "added to the norm of the gradient"),
       weight_decay_param("0", "added to the gradient, times w, before it is scaled"),
       {.name = "form",
        .type = Type::word,
        .doc =
            "which norm the step is measured by: paper, |g| + weight_decay |w|; gradient, |g|; tensorflow, |g + weight_decay w|, with the "
            "rate inside the buffer",
        .preset = "paper",
        .words = {"paper", "gradient", "tensorflow"}}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Lars>(values); }

}  // namespace

extern const Rule row_lars{.name = "lars", .schema = schema, .make = build};

}  // namespace cohort::optim
