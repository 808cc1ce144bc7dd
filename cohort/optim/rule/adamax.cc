// Adamax (Kingma and Ba 2015, section 7.1), in torch's form: adam with the largest gradient in place of the second moment.
//   g <- g + weight_decay w,   m <- b1 m + (1 - b1) g,   n <- max(b2 n, |g| + eps),   w <- w - lr / (1 - b1^t) * m / n
// Law: on a constant gradient every step is lr * sign(g), whatever its size.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T rate, decay, b1, fresh1, b2, eps;
  COHORT_INLINE void operator()(T& w, T g, T& m, T& n) const {
    g += decay * w;
    m = b1 * m + fresh1 * g;
    const T size = (g < 0 ? -g : g) + eps;
    n = size <= b2 * n ? b2 * n : size;  // in this order a NaN gets through
    w -= rate * m / n;
  }
};

class Adamax : public Optimizer {
 public:
  explicit Adamax(const SpecValues& v)
      : lr_(v.real("lr")), b1_(v.real("beta1")), b2_(v.real("beta2")), eps_(v.real("eps")), decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_inf"}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void apply(const Slice& s, const StepInfo& info) const override {
    const double rate = info.lr * s.lr_scale / (1 - power(b1_, info.step));
    with_real(s.dtype, [&](auto zero) {
      const auto t = [](double x) { return static_cast<decltype(zero)>(x); };
      for_each_element<decltype(zero), 2>(Pass<decltype(zero)>{t(rate), t(s.weight_decay), t(b1_), t(1 - b1_), t(b2_), t(eps_)}, s, info);
    });
  }
  double lr_, b1_, b2_, eps_, decay_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = moment_params("2e-3", "1e-8", "0", "added to the gradient, times w");
    params[2].doc = "share of the largest gradient kept";
    params[3].doc = "added to the size of the gradient";
    params[3].low = 1e-37;  // a gradient of 0 is divided by it
    return SpecSchema{"adamax", "adam with the largest gradient in place of the second moment", std::move(params)};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Adamax>(values); }

}  // namespace

extern const Rule row_adamax{.name = "adamax", .schema = schema, .make = build};

}  // namespace cohort::optim
