// NAdam (Dozat 2016), in torch's form: adam with Nesterov's momentum, whose share mu warms up.
//   mu_t = b1 (1 - 0.96^(t momentum_decay) / 2),   M_t = mu_1 mu_2 .. mu_t
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   d = sqrt(v / (1 - b2^t)) + eps
//   w <- w - lr ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / d
// Weight decay is part of the gradient, or with decoupled w <- (1 - lr weight_decay) w before the step.
// Law: momentum_decay 0 has a constant mu = b1 / 2. M_t is no state here: a product of numbers that step and parameters tell.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

template <class T, bool decoupled>
struct Pass {
  T decay, b1, fresh1, b2, fresh2, root, eps, of_gradient, of_moment;
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v) const {
    if constexpr (decoupled)
      w *= decay;
    else
      g += decay * w;
    m = b1 * m + fresh1 * g;
    v = b2 * v + fresh2 * g * g;
    w -= (of_gradient * g + of_moment * m) / (std::sqrt(v) / root + eps);
  }
};

class Nadam : public Optimizer {
 public:
  explicit Nadam(const SpecValues& v)
      : lr_(v.real("lr")),
        b1_(v.real("beta1")),
        b2_(v.real("beta2")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        momentum_decay_(v.real("momentum_decay")),
        decoupled_(v.boolean("decoupled")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  struct Share {
    double now, next, product;  // mu_t, mu_(t+1), M_t
  };
  Share share(std::int64_t step) const {
    constexpr double kGone = 0x1p-60;  // 1 minus less is 1
    const double each = real_power(0.96, momentum_decay_);
    double fallen = each, product = b1_ * (1 - fallen / 2);
    for (std::int64_t t = 2; t <= step && product > kGone; ++t) product *= b1_ * (1 - (fallen *= each) / 2);
    const double now = real_power(0.96, static_cast<double>(step) * momentum_decay_);
    return {b1_ * (1 - now / 2), b1_ * (1 - now * each / 2), product};
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double lr = info.lr * s.lr_scale, root = std::sqrt(1 - power(b2_, info.step));
    const Share mu = share(info.step);
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto t = [](double x) { return static_cast<T>(x); };
      with_flag(decoupled_, [&](auto decoupled) {
        for_each_element<T, 2>(
            Pass<T, decoupled()>{t(decoupled() ? 1 - lr * s.weight_decay : s.weight_decay), t(b1_), t(1 - b1_), t(b2_), t(1 - b2_), t(root),
                                 t(eps_), t(lr * (1 - mu.now) / (1 - mu.product)), t(lr * mu.next / (1 - mu.product * mu.next))},
            s, info);
      });
    });
  }
  double lr_, b1_, b2_, eps_, decay_, momentum_decay_;
  bool decoupled_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = moment_params("2e-3", "1e-8", "0", "added to the gradient, times w");
    params.push_back(number_param("momentum_decay", "4e-3", "how fast the share of the momentum warms up"));
    params.push_back(decoupled_param());
    return SpecSchema{"nadam", "adam that looks one momentum step ahead", std::move(params)};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Nadam>(values); }

}  // namespace

extern const Rule row_nadam{.name = "nadam", .schema = schema, .make = build};

}  // namespace cohort::optim
