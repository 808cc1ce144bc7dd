// LARC, the form of LARS that NVIDIA trains with; norms are those of the whole tensor:
//   ratio = trust |w| / (|g| + weight_decay |w| + eps),   mode=clip: min(ratio / lr, 1),   mode=scale: ratio
//   g <- ratio (g + weight_decay w),   where w or g is zero: g as it is, without decay
//   b <- momentum b + g,   w <- w - lr b,   or with nesterov   w <- w - lr (g + momentum b)
// Laws: clipped, with a trust that is large enough, it is sgd with momentum and L2; no first step is longer than sgd's, nor than
// trust (|w| + weight_decay |w|^2 / |g|).
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/trust_ratio.h"

namespace cohort::optim {
namespace {

template <class T, bool nesterov>
struct Pass {
  T rate, ratio, decay, momentum;
  COHORT_INLINE void operator()(T& w, T g, T& b) const {
    g = ratio * (g + decay * w);
    b = momentum * b + g;
    w -= rate * (nesterov ? g + momentum * b : b);
  }
};

class Larc : public Optimizer {
 public:
  explicit Larc(const SpecValues& v)
      : lr_(v.real("lr")),
        momentum_(v.real("momentum")),
        trust_(v.real("trust")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        clips_(v.word("mode") == "clip"),
        nesterov_(v.boolean("nesterov")) {
    if (nesterov_ && momentum_ == 0) throw_failure(Kind::usage, "larc: nesterov needs momentum > 0");
  }
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  Needs needs() const override { return {.rounds = 1, .per_tensor = 2}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void add_sums(int, const Slice& s, const StepInfo&, std::span<ExactSum> sums) const override {
    add_squares(s, s.param, sums[0]);
    add_squares(s, s.grad, sums[1]);
  }
  double ratio(double weights, double gradient, double decay, double lr) const {
    const double ratio = trust_ratio(trust_ * weights, gradient + decay * weights + eps_);
    if (!clips_) return ratio;
    return ratio >= lr ? 1 : ratio / lr;
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    const double weights = std::sqrt(s.sums[0]), gradient = std::sqrt(s.sums[1]) * std::abs(info.grad_scale), lr = info.lr * s.lr_scale;
    const bool adapts = weights > 0 && gradient > 0;
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto t = [](double x) { return static_cast<T>(x); };
      with_flag(nesterov_, [&](auto nesterov) {
        for_each_element<T, 1>(Pass<T, nesterov()>{t(lr), t(adapts ? ratio(weights, gradient, s.weight_decay, lr) : 1),
                                                   t(adapts ? s.weight_decay : 0), t(momentum_)},
                               s, info);
      });
    });
  }
  double lr_, momentum_, trust_, eps_, decay_;
  bool clips_, nesterov_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "larc",
      "momentum whose step is clipped to a share of the size of each tensor",
      {lr_param("0.1"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0.9", .low = 0, .high = 1},
       number_param("trust", "0.02", "the longest step, as a share of the tensor's norm; scale: the step at rate 1"),
       number_param("eps", "1e-8", "added to the norm of the gradient"),
       weight_decay_param("0", "added to the gradient, times w, before it is scaled"),
       {.name = "mode",
        .type = Type::word,
        .doc = "clip: no tensor learns faster than the rate; scale: the rate is multiplied",
        .preset = "clip",
        .words = {"clip", "scale"}},
       flag_param("nesterov", "look one momentum step ahead")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Larc>(values); }

}  // namespace

extern const Rule row_larc{.name = "larc", .schema = schema, .make = build};

}  // namespace cohort::optim
