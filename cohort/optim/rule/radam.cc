// RAdam (Liu et al. 2020), in torch's form: adam whose rate waits until the second moment has seen enough.
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   R = 2 / (1 - b2) - 1,   r = R - 2 t b2^t / (1 - b2^t)
//   r > 5:  w <- w - lr m / (1 - b1^t) * sqrt((r - 4) (r - 2) R / ((R - 4) (R - 2) r)) sqrt(1 - b2^t) / (sqrt(v) + eps)
//   else:   w <- w - lr m / (1 - b1^t)
// Weight decay is part of the gradient, or with decoupled w <- (1 - lr weight_decay) w before the step.
// Law: the first steps (5 for b2 = 0.999) are momentum's, in proportion to the gradient; after many it is adam.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

template <class T, bool decoupled, bool rectified>
struct Pass {
  T decay, b1, fresh1, b2, fresh2, eps, rate;
  COHORT_INLINE void operator()(T& w, T g, T& m, T& v) const {
    if constexpr (decoupled)
      w *= decay;
    else
      g += decay * w;
    m = b1 * m + fresh1 * g;
    v = b2 * v + fresh2 * g * g;
    w -= rectified ? rate * m / (std::sqrt(v) + eps) : rate * m;
  }
};

class Radam : public Optimizer {
 public:
  explicit Radam(const SpecValues& v)
      : lr_(v.real("lr")),
        b1_(v.real("beta1")),
        b2_(v.real("beta2")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        decoupled_(v.boolean("decoupled")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  // What the rate of a rectified step is multiplied with; 0: it is not rectified.
  double rectified(std::int64_t step) const {
    constexpr double kEnough = 5;
    const double longest = 2 / (1 - b2_) - 1, left = power(b2_, step), seen = longest - 2 * static_cast<double>(step) * left / (1 - left);
    if (seen <= kEnough) return 0;
    return std::sqrt((seen - 4) * (seen - 2) * longest / ((longest - 4) * (longest - 2) * seen)) * std::sqrt(1 - left);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double lr = info.lr * s.lr_scale, factor = rectified(info.step), rate = lr / (1 - power(b1_, info.step));
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto t = [](double x) { return static_cast<T>(x); };
      with_flag(decoupled_, [&](auto decoupled) {
        with_flag(factor > 0, [&](auto ready) {
          for_each_element<T, 2>(Pass<T, decoupled(), ready()>{t(decoupled() ? 1 - lr * s.weight_decay : s.weight_decay), t(b1_),
                                                               t(1 - b1_), t(b2_), t(1 - b2_), t(eps_), t(ready() ? rate * factor : rate)},
                                 s, info);
        });
      });
    });
  }
  double lr_, b1_, b2_, eps_, decay_;
  bool decoupled_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = moment_params("1e-3", "1e-8", "0", "added to the gradient, times w");
    params.push_back(decoupled_param());
    return SpecSchema{"radam", "adam that begins as momentum, for runs without warm-up", std::move(params)};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Radam>(values); }

}  // namespace

extern const Rule row_radam{.name = "radam", .schema = schema, .make = build};

}  // namespace cohort::optim
