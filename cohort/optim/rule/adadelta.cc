// Adadelta (Zeiler 2012), in torch's form.
//   g <- g + weight_decay w,   s <- rho s + (1 - rho) g^2
//   d = sqrt(u + eps) / sqrt(s + eps) g,   u <- rho u + (1 - rho) d^2,   w <- w - lr d
// Law: with eps 0 and u > 0 a step has the size of the steps before it, whatever the unit of the loss: gradients times any factor give
// the same steps.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T rate, decay, rho, fresh, eps;
  COHORT_INLINE void operator()(T& w, T g, T& s, T& u) const {
    g += decay * w;
    s = rho * s + fresh * g * g;
    const T d = std::sqrt(u + eps) / std::sqrt(s + eps) * g;
    u = rho * u + fresh * d * d;
    w -= rate * d;
  }
};

class Adadelta : public Optimizer {
 public:
  explicit Adadelta(const SpecValues& v) : lr_(v.real("lr")), rho_(v.real("rho")), eps_(v.real("eps")), decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) {
      const auto t = [](double x) { return static_cast<decltype(zero)>(x); };
      for_each_element<decltype(zero), 2>(Pass<decltype(zero)>{t(info.lr * s.lr_scale), t(s.weight_decay), t(rho_), t(1 - rho_), t(eps_)},
                                          s, info);
    });
  }
  double lr_, rho_, eps_, decay_;
};

const SpecSchema& schema() {
  SpecParam eps = number_param("eps", "1e-6", "added under both roots: what the first steps come from");
  eps.low = 1e-37;
  static const SpecSchema schema{"adadelta",
                                 "steps in proportion to those before them: no rate to find",
                                 {lr_param("1"), share_param("rho", "0.9", "share of the mean squares kept"), eps,
                                  weight_decay_param("0", "added to the gradient, times w")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Adadelta>(values); }

}  // namespace

extern const Rule row_adadelta{.name = "adadelta", .schema = schema, .make = build};

}  // namespace cohort::optim
