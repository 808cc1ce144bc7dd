// RMSprop (Tieleman and Hinton 2012; centered: Graves 2013), in torch's form.
//   g <- g + weight_decay w,   s <- alpha s + (1 - alpha) g^2
//   centered: a <- alpha a + (1 - alpha) g, and s - a^2 in place of s below
//   w <- w - lr g / (sqrt(s) + eps),   or with momentum   b <- momentum b + g / (sqrt(s) + eps),  w <- w - lr b
// Law: on a constant gradient step t is lr / sqrt(1 - alpha^t), whatever the gradient's size.
// One difference to torch: a variance s - a^2 that rounding made negative counts as 0, where torch's root gives NaN.
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Mean {
  T rate, decay, alpha, fresh, eps, momentum;
  COHORT_INLINE T squares(T g, T& s) const { return s = alpha * s + fresh * g * g; }
  COHORT_INLINE T variance(T g, T& s, T& a) const {
    squares(g, s);
    a = alpha * a + fresh * g;
    const T variance = s - a * a;
    return variance < 0 ? 0 : variance;  // a NaN stays
  }
  COHORT_INLINE void step(T& w, T g, T square) const { w -= rate * g / (std::sqrt(square) + eps); }
  COHORT_INLINE void step(T& w, T g, T square, T& b) const { w -= rate * (b = momentum * b + g / (std::sqrt(square) + eps)); }
};

template <class T, bool centered>
struct Pass {
  Mean<T> mean;
  template <class... Buffer>  // none, or the momentum buffer
  COHORT_INLINE void operator()(T& w, T g, T& s, Buffer&... b) const requires(!centered) {
    g += mean.decay * w;
    mean.step(w, g, mean.squares(g, s), b...);
  }
  template <class... Buffer>
  COHORT_INLINE void operator()(T& w, T g, T& s, T& a, Buffer&... b) const requires centered {
    g += mean.decay * w;
    mean.step(w, g, mean.variance(g, s, a), b...);
  }
};

class Rmsprop : public Optimizer {
 public:
  explicit Rmsprop(const SpecValues& v)
      : lr_(v.real("lr")),
        alpha_(v.real("alpha")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        momentum_(v.real("momentum")),
        centered_(v.boolean("centered")) {}
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names{"square_avg"};
    if (centered_) names.emplace_back("grad_avg");
    if (momentum_ > 0) names.emplace_back("momentum_buffer");
    return names;
  }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const auto t = [](double x) { return static_cast<T>(x); };
    const Mean<T> mean{t(info.lr * s.lr_scale), t(s.weight_decay), t(alpha_), t(1 - alpha_), t(eps_), t(momentum_)};
    with_flag(centered_, [&](auto centered) {
      with_flag(momentum_ > 0,
                [&](auto buffered) { for_each_element<T, 1 + centered() + buffered()>(Pass<T, centered()>{mean}, s, info); });
    });
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, alpha_, eps_, decay_, momentum_;
  bool centered_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "rmsprop",
      "gradients divided by a running root mean square",
      {lr_param("1e-2"),
       {.name = "alpha", .type = Type::real, .doc = "share of the mean square kept", .preset = "0.99", .low = 0, .high = 1},
       {.name = "eps", .type = Type::real, .doc = "added to the root", .preset = "1e-8", .low = 0},
       weight_decay_param("0", "added to the gradient, times w"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0", .low = 0, .high = 1},
       {.name = "centered", .type = Type::boolean, .doc = "divide by the variance instead of the mean square", .preset = "false"}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Rmsprop>(values); }

}  // namespace

extern const Rule row_rmsprop{.name = "rmsprop", .schema = schema, .make = build};

}  // namespace cohort::optim
