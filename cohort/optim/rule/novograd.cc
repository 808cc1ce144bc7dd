// NovoGrad (Ginsburg et al. 2019): one second moment for each tensor, weight decay outside it.
//   v_1 = |g_1|^2,   v <- b2 v + (1 - b2) |g|^2;   m <- b1 m + c (g / (sqrt(v) + eps) + weight_decay w),   w <- w - lr m
//   c = 1, or with grad_averaging 1 - b1
// Law: without weight decay the first update has norm lr c, whatever the size of the gradient. State is one number for each element, and
// one for each tensor.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T rate, length, decay, b1, fresh;
  COHORT_INLINE void operator()(T& w, T g, T& m) const {
    m = b1 * m + fresh * (g / length + decay * w);
    w -= rate * m;
  }
};

class Novograd : public Optimizer {
 public:
  explicit Novograd(const SpecValues& v)
      : lr_(v.real("lr")),
        b1_(v.real("beta1")),
        b2_(v.real("beta2")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        averages_(v.boolean("grad_averaging")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    return {{"exp_avg", tensor.shape, tensor.dtype}, {"exp_avg_sq", {1}, tensor.dtype}};
  }
  Needs needs() const override { return {.grain = Grain::tensor}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    T& v = *static_cast<T*>(s.state[1]);
    const double squared = squared_norm(s.grad, s.count, s.dtype) * info.grad_scale * info.grad_scale;
    v = static_cast<T>(info.step == 1 ? squared : b2_ * static_cast<double>(v) + (1 - b2_) * squared);
    const auto t = [](double x) { return static_cast<T>(x); };
    const T length = t(std::sqrt(static_cast<double>(v)) + eps_);
    for_each_element<T, 1>(Pass<T>{t(info.lr * s.lr_scale), length, t(s.weight_decay), t(b1_), t(averages_ ? 1 - b1_ : 1)}, s, info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, b1_, b2_, eps_, decay_;
  bool averages_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    SpecParam eps = number_param("eps", "1e-8", "added to the root of the second moment");
    eps.low = 1e-37;  // a gradient of 0 is divided by it
    return SpecSchema{"novograd",
                      "momentum of gradients divided by the norm of their tensor",
                      {lr_param("1e-2"), share_param("beta1", "0.95", "share of the first moment kept"),
                       share_param("beta2", "0.98", "share of the tensor's second moment kept"), eps,
                       weight_decay_param("0", "part of the step, times w"),
                       flag_param("grad_averaging", "the moment is a mean, not a sum: steps are 1 / (1 - beta1) times shorter")}};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Novograd>(values); }

}  // namespace

extern const Rule row_novograd{.name = "novograd", .schema = schema, .make = build};

}  // namespace cohort::optim
