// Eve (Hayashi, Koushik and Neubig 2016): adam whose rate falls while the loss jumps about and rises while it stands still.
//   r = |f - f'| / (min(f, f') - least),  f, f': loss of this step and of the one before;   r into 1/c .. c
//   d <- beta3 d + (1 - beta3) r from step 2 on, 1 at first;   w <- w - lr/d m' / (sqrt(v') + eps), m' and v' as adam's
// Law: beside a loss that changes by its own size in every step it is adam. Where the loss is not known d stays.
#include "cohort/optim/rule/adam.h"
#include "cohort/optim/wide.h"

namespace cohort::optim {
namespace {

class Eve : public Optimizer {
 public:
  explicit Eve(const SpecValues& v)
      : lr_(v.real("lr")),
        decay_(v.real("weight_decay")),
        beta3_(v.real("beta3")),
        c_(v.real("c")),
        least_(v.real("least_loss")),
        betas_{v.real("beta1"), v.real("beta2"), v.real("eps")} {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq", "feedback"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    return {{"exp_avg", tensor.shape, tensor.dtype}, {"exp_avg_sq", tensor.shape, tensor.dtype}, {"feedback", {4}, tensor.dtype}};
  }
  Needs needs() const override { return {.grain = Grain::tensor, .loss = true}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  // kept: d and f', as wide numbers.
  template <class T>
  double divisor(T* kept, double f) const {
    constexpr double kNone = 0;  // of d, before there were two losses
    const double d = read_wide(kept), before = read_wide(kept + 2), now = d == kNone ? 1 : d;
    if (std::isnan(f)) return now;
    write_wide(kept + 2, f);
    if (d == kNone) return write_wide(kept, 1), 1;
    const double change = std::abs(f - before), size = std::min(f, before) - least_;
    const double ratio = change >= c_ * size ? c_ : std::max(change / size, 1 / c_);  // a size of 0, or below: c
    const double next = beta3_ * d + (1 - beta3_) * ratio;
    return write_wide(kept, next), next;
  }
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const double d = divisor(static_cast<T*>(s.state[2]), info.loss);
    Slice with = s;
    with.state = s.state.first(2);
    for_each_element<T, 2>(adam_pass<T, false>(betas_, info.lr * s.lr_scale / d, s.weight_decay, info.step), with, info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }
  double lr_, decay_, beta3_, c_, least_;
  Betas betas_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = moment_params("1e-3", "1e-8", "0", "added to the gradient, times w");
    params.push_back(share_param("beta3", "0.999", "share of the loss's changes kept"));
    params.push_back({.name = "c", .type = SpecParam::Type::real, .doc = "largest of them that counts", .preset = "10", .low = 1});
    params.push_back({.name = "least_loss", .type = SpecParam::Type::real, .doc = "what the loss cannot fall below", .preset = "0"});
    return SpecSchema{"eve", "adam whose rate follows how the loss changes", params};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Eve>(values); }

}  // namespace

extern const Rule row_eve{.name = "eve", .schema = schema, .make = build};

}  // namespace cohort::optim
