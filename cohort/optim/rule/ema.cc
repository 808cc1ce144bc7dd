// An exponential moving average of the parameters (Polyak and Juditsky 1992; Izmailov et al. 2018 name it beside theirs) beside any rule:
//   w by the rule `of`;   a <- k a + (1 - k) w,   k = min(decay, t / (t + 9)), 0 in the first step: early parameters are soon forgotten
// Law: constant parameters are their own average; the shares that all parameters so far have in a add up to 1.
#include "cohort/optim/averaged_rule.h"

namespace cohort::optim {
namespace {

class Ema : public AveragedRule {
 public:
  explicit Ema(const SpecValues& v) : AveragedRule(v), keep_(v.real("decay")) {}

 private:
  double share_kept(std::int64_t step) const override {
    const auto t = static_cast<double>(step);
    return step == 1 ? 0 : std::min(keep_, t / (t + 9));
  }
  double keep_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = averaged_params();
    params.push_back(share_param("decay", "0.999", "share of the average kept in a step"));
    return SpecSchema{"ema", "another rule, and a moving average of the parameters, which is what is evaluated", params};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Ema>(values); }

}  // namespace

extern const Rule row_ema{.name = "ema", .schema = schema, .make = build};

}  // namespace cohort::optim
