// Lion (Chen et al. 2023): the sign of a momentum, one state only.
//   u = sign(b1 m + (1 - b1) g),   m <- b2 m + (1 - b2) g,   w <- (1 - lr weight_decay) w - lr u
// Law: every element that is not at rest moves by lr, whatever the size of its gradient. So a rate is a third to a tenth of adamw's, and
// a weight decay three to ten times as large.
#include "cohort/optim/elementwise.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {
namespace {

template <class T>
struct Pass {
  T keep, rate, b1, fresh1, b2, fresh2;
  COHORT_INLINE static T sign(T x) { return x > 0 ? T{1} : x < 0 ? T{-1} : x; }  // a NaN stays
  COHORT_INLINE void operator()(T& w, T g, T& m) const {
    w = keep * w - rate * sign(b1 * m + fresh1 * g);
    m = b2 * m + fresh2 * g;
  }
};

class Lion : public Optimizer {
 public:
  explicit Lion(const SpecValues& v) : lr_(v.real("lr")), b1_(v.real("beta1")), b2_(v.real("beta2")), decay_(v.real("weight_decay")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  void apply(const Slice& s, const StepInfo& info) const override {
    const double lr = info.lr * s.lr_scale;
    with_real(s.dtype, [&](auto zero) {
      const auto t = [](double x) { return static_cast<decltype(zero)>(x); };
      for_each_element<decltype(zero), 1>(Pass<decltype(zero)>{t(1 - lr * s.weight_decay), t(lr), t(b1_), t(1 - b1_), t(b2_), t(1 - b2_)},
                                          s, info);
    });
  }
  double lr_, b1_, b2_, decay_;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "lion",
      "the sign of a momentum: every element moves by the rate",
      {lr_param("1e-4"), share_param("beta1", "0.9", "share of the momentum in a step"),
       share_param("beta2", "0.99", "share of the momentum kept"), weight_decay_param("0", "shrinks w by lr times this")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Lion>(values); }

}  // namespace

extern const Rule row_lion{.name = "lion", .schema = schema, .make = build};

}  // namespace cohort::optim
