// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al. 2013, in torch's form: the rate stays outside the buffer).
//   g <- g + weight_decay w
//   b <- g at step 1, momentum b + (1 - dampening) g afterwards
//   w <- w - lr b,   or with nesterov   w <- w - lr (g + momentum b);   without momentum   w <- w - lr g
// Law: on the quadratic w^2 / 2 without momentum, w_t = (1 - lr)^t w_0. On a constant gradient the buffer tends to g / (1 - momentum).
#include "cohort/base/error.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Plain {
  T rate, decay;
  COHORT_INLINE void operator()(T& w, T g) const { w -= rate * (g + decay * w); }
};

template <class T, bool first, bool nesterov>
struct Momentum {
  T rate, decay, momentum, fresh;
  COHORT_INLINE void operator()(T& w, T g, T& b) const {
    g += decay * w;
    b = first ? g : momentum * b + fresh * g;
    w -= rate * (nesterov ? g + momentum * b : b);
  }
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(const SpecValues& v)
      : lr_(v.real("lr")),
        decay_(v.real("weight_decay")),
        momentum_(v.real("momentum")),
        dampening_(v.real("dampening")),
        nesterov_(v.boolean("nesterov")) {
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0))
      throw_failure(Kind::usage, "sgd: nesterov needs momentum > 0 and dampening 0, not momentum {} and dampening {}", momentum_,
                    dampening_);
  }
  std::vector<std::string> state_names() const override {
    return momentum_ == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
  }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const auto rate = static_cast<T>(info.lr * s.lr_scale), decay = static_cast<T>(s.weight_decay);
    if (momentum_ == 0) return for_each_element<T, 0>(Plain<T>{rate, decay}, s, info);
    const auto momentum = static_cast<T>(momentum_), fresh = static_cast<T>(1 - dampening_);
    with_flag(info.step == 1, [&](auto first) {
      with_flag(nesterov_, [&](auto nesterov) {
        for_each_element<T, 1>(Momentum<T, first(), nesterov()>{rate, decay, momentum, fresh}, s, info);
      });
    });
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, decay_, momentum_, dampening_;
  bool nesterov_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "sgd",
      "stochastic gradient descent, with momentum if asked",
      {lr_param("1e-3"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0", .low = 0, .high = 1},
       {.name = "dampening", .type = Type::real, .doc = "share of the gradient kept out of the buffer", .preset = "0", .high = 1},
       weight_decay_param("0", "added to the gradient, times w"),
       {.name = "nesterov", .type = Type::boolean, .doc = "look one momentum step ahead", .preset = "false"}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Sgd>(values); }

}  // namespace

extern const Rule row_sgd{.name = "sgd", .schema = schema, .make = build};

}  // namespace cohort::optim
