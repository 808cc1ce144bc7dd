// What adam and adamw share: moments, bias corrections, the step. They differ in where weight decay enters.
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   [amsgrad: x <- max(x, v), used in place of v]
//   w <- w - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
#pragma once
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
inline namespace COHORT_RULES {  // files that include this are compiled for GPUs, too

template <class T>
struct Moments {
  T b1, fresh1, b2, fresh2, root, eps, rate;

  COHORT_INLINE void mix(T g, T& m, T& v) const {
    m = b1 * m + fresh1 * g;
    v = b2 * v + fresh2 * g * g;
  }
  COHORT_INLINE T step(T m, T v) const { return rate * m / (std::sqrt(v) / root + eps); }
};

// decoupled: w <- (1 - lr decay) w before the step; otherwise g <- g + decay w.
template <class T, bool decoupled>
struct AdamPass {
  Moments<T> moments;
  T decay;  // weight decay, or 1 - lr decay
  COHORT_INLINE T begin(T& w, T g) const {
    if constexpr (!decoupled) return g + decay * w;
    w *= decay;
    return g;
  }
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v) const {
    g = begin(w, g);
    moments.mix(g, m, v);
    w -= moments.step(m, v);
  }
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v, T& most) const {
    g = begin(w, g);
    moments.mix(g, m, v);
    most = v <= most ? most : v;  // in this order a NaN in v gets through
    w -= moments.step(m, most);
  }
};

struct Betas {
  double b1, b2, eps;
};

template <class T, bool decoupled>
AdamPass<T, decoupled> adam_pass(const Betas& betas, double lr, double weight_decay, std::int64_t step) {
  const double rate = lr / (1 - power(betas.b1, step)), root = std::sqrt(1 - power(betas.b2, step));
  const auto t = [](double x) { return static_cast<T>(x); };
  return {{t(betas.b1), t(1 - betas.b1), t(betas.b2), t(1 - betas.b2), t(root), t(betas.eps), t(rate)},
          t(decoupled ? 1 - lr * weight_decay : weight_decay)};
}

template <bool decoupled>
class AdamRule : public Optimizer {
 public:
  explicit AdamRule(const SpecValues& v)
      : lr_(v.real("lr")),
        decay_(v.real("weight_decay")),
        betas_{v.real("beta1"), v.real("beta2"), v.real("eps")},
        amsgrad_(v.boolean("amsgrad")) {}
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names{"exp_avg", "exp_avg_sq"};
    if (amsgrad_) names.emplace_back("max_exp_avg_sq");
    return names;
  }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const auto pass = adam_pass<T, decoupled>(betas_, info.lr * s.lr_scale, s.weight_decay, info.step);
    amsgrad_ ? for_each_element<T, 3>(pass, s, info) : for_each_element<T, 2>(pass, s, info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, decay_;
  Betas betas_;
  bool amsgrad_;
};

inline std::vector<SpecParam> moment_params(std::string_view lr, std::string_view eps, std::string_view weight_decay,
                                            std::string_view weight_decay_doc) {
  return {lr_param(lr), share_param("beta1", "0.9", "share of the first moment kept"),
          share_param("beta2", "0.999", "share of the second moment kept"),
          number_param("eps", eps, "added to the root of the second moment"), weight_decay_param(weight_decay, weight_decay_doc)};
}
inline SpecParam decoupled_param() { return flag_param("decoupled", "weight decay shrinks w by lr times it instead, as adamw's does"); }
inline std::vector<SpecParam> adam_params(std::string_view weight_decay, std::string_view weight_decay_doc) {
  auto params = moment_params("1e-3", "1e-8", weight_decay, weight_decay_doc);
  params.push_back(flag_param("amsgrad", "divide by the largest second moment so far (Reddi et al. 2018)"));
  return params;
}

}  // namespace COHORT_RULES
}  // namespace cohort::optim
