// LAMB (You et al. 2020); norms are those of the whole tensor:
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
//   u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay w
//   w <- w - lr |w| / |u| u;   the ratio is 1 where w or u is zero, and for groups without weight decay unless adapt=all
// The paper clips the norm of the whole gradient to 1 first: that is engine.clip_norm.
// Law: the first step of an adapted tensor is lr |w| long, whatever its gradient.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/trust_ratio.h"

namespace cohort::optim {
namespace {

template <class T>
struct Step {
  T b1, fresh1, b2, fresh2, correction, root, eps, decay;
  COHORT_INLINE T operator()(T w, T g, T& m, T& v) const {
    m = b1 * m + fresh1 * g;
    v = b2 * v + fresh2 * g * g;
    return m / correction / (std::sqrt(v) / root + eps) + decay * w;
  }
};
template <class T>
struct Update {
  Step<T> step;
  T rate;
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v) const { w -= rate * step(w, g, m, v); }
};
template <class T>
struct StepAlone {
  Step<T> step;
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v) const { w = step(w, g, m, v); }
};

class Lamb : public Optimizer {
 public:
  explicit Lamb(const SpecValues& v)
      : lr_(v.real("lr")),
        b1_(v.real("beta1")),
        b2_(v.real("beta2")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        all_(v.word("adapt") == "all") {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  Needs needs() const override { return {.rounds = 2, .per_tensor = 1}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  bool adapts(const Slice& s) const { return all_ || s.weight_decay != 0; }
  template <class T>
  Step<T> step(const Slice& s, const StepInfo& info) const {
    const auto t = [](double x) { return static_cast<T>(x); };
    return {t(b1_),  t(1 - b1_),       t(b2_), t(1 - b2_), t(1 - power(b1_, info.step)), t(std::sqrt(1 - power(b2_, info.step))),
            t(eps_), t(s.weight_decay)};
  }
  void add_sums(int round, const Slice& s, const StepInfo& info, std::span<ExactSum> sums) const override {
    if (!adapts(s)) return;
    if (round == 0) return add_squares(s, s.param, sums[0]);
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      add_squares_after<T, 2>(StepAlone<T>{step<T>(s, info)}, s, info, sums[0]);
    });
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double ratio = adapts(s) ? trust_ratio(std::sqrt(s.sums[0]), std::sqrt(s.sums[1])) : 1;
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_element<T, 2>(Update<T>{step<T>(s, info), static_cast<T>(info.lr * s.lr_scale * ratio)}, s, info);
    });
  }
  double lr_, b1_, b2_, eps_, decay_;
  bool all_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  constexpr double kBelowOne = 0.99999999999;  // a moment that takes nothing in would never start
  static const SpecSchema schema{
      "lamb",
      "adam whose step is in proportion to the size of each tensor, for large batches",
      {lr_param("1e-2"),
       {.name = "beta1", .type = Type::real, .doc = "share of the first moment kept", .preset = "0.9", .low = 0, .high = kBelowOne},
       {.name = "beta2", .type = Type::real, .doc = "share of the second moment kept", .preset = "0.999", .low = 0, .high = kBelowOne},
       {.name = "eps", .type = Type::real, .doc = "added to the root of the second moment", .preset = "1e-6", .low = 0},
       weight_decay_param("1e-2", "part of the step, times w"),
       {.name = "adapt",
        .type = Type::word,
        .doc = "which tensors are scaled to their size: those of groups with weight decay, or all",
        .preset = "decayed",
        .words = {"decayed", "all"}}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Lamb>(values); }

}  // namespace

extern const Rule row_lamb{.name = "lamb", .schema = schema, .make = build};

}  // namespace cohort::optim
