// Stochastic weight averaging (Izmailov et al. 2018) beside any rule: the mean of the parameters after step `start`, and after every
// `every`-th from there on.
//   w by the rule `of`;   up to step start: a <- w;   then, if every divides t - start:  a <- (n a + w) / (n + 1),  n = (t - start) / every
// Law: a is the mean of what was taken in, each with the same share.
#include "cohort/optim/averaged_rule.h"

namespace cohort::optim {
namespace {

class Swa : public AveragedRule {
 public:
  explicit Swa(const SpecValues& v) : AveragedRule(v), start_(v.integer("start")), every_(v.integer("every")) {}

 private:
  double share_kept(std::int64_t step) const override {
    if (step <= start_ || step == 1) return 0;
    const std::int64_t since = step - start_;
    const auto n = static_cast<double>(since / every_);
    return since % every_ == 0 ? n / (n + 1) : 1;
  }
  std::int64_t start_, every_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema = [] {
    auto params = averaged_params();
    params.push_back(
        {.name = "start", .type = Type::integer, .doc = "step whose parameters are the first", .preset = "1", .low = 1, .high = 1e12});
    params.push_back({.name = "every", .type = Type::integer, .doc = "steps from one to the next", .preset = "1", .low = 1, .high = 1e9});
    return SpecSchema{"swa", "another rule, and the mean of the parameters from a step on, which is what is evaluated", params};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Swa>(values); }

}  // namespace

extern const Rule row_swa{.name = "swa", .schema = schema, .make = build};

}  // namespace cohort::optim
