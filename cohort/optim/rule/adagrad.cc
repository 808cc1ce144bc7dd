// Adagrad (Duchi, Hazan and Singer 2011).
//   g <- g + weight_decay w,   s <- s + g^2,   w <- w - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)
// Law: after t equal gradients the step is lr / sqrt(t), whatever their size (s_0 = 0, lr_decay = 0); s never falls.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T rate, decay, eps;
  COHORT_INLINE void operator()(T& w, T g, T& sum) const {
    g += decay * w;
    sum += g * g;
    w -= rate * g / (std::sqrt(sum) + eps);
  }
};

class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const SpecValues& v)
      : lr_(v.real("lr")),
        lr_decay_(v.real("lr_decay")),
        decay_(v.real("weight_decay")),
        initial_(v.real("initial_accumulator_value")),
        eps_(v.real("eps")) {}
  std::vector<std::string> state_names() const override { return {"sum"}; }
  double initial_state(std::size_t) const override { return initial_; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const double rate = info.lr * s.lr_scale / (1 + static_cast<double>(info.step - 1) * lr_decay_);
    for_each_element<T, 1>(Pass<T>{static_cast<T>(rate), static_cast<T>(s.weight_decay), static_cast<T>(eps_)}, s, info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, lr_decay_, decay_, initial_, eps_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "adagrad",
      "each element's rate falls with the squares it has seen: sparse gradients, parameter servers",
      {lr_param("1e-2"),
       {.name = "lr_decay", .type = Type::real, .doc = "the rate is divided by 1 + (t - 1) times this", .preset = "0", .low = 0},
       weight_decay_param("0", "added to the gradient, times w"),
       {.name = "initial_accumulator_value", .type = Type::real, .doc = "what the sum of squares starts from", .preset = "0", .low = 0},
       {.name = "eps", .type = Type::real, .doc = "added to the root of the sum", .preset = "1e-10", .low = 0}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Adagrad>(values); }

}  // namespace

extern const Rule row_adagrad{.name = "adagrad", .schema = schema, .make = build};

}  // namespace cohort::optim
