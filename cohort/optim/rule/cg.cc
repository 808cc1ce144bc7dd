// Nonlinear conjugate gradients (Fletcher and Reeves 1964; Polak and Ribiere 1969) with a line search for the strong Wolfe conditions.
//   d <- -g + beta d,   pr: beta = max(0, <g, g - g'> / <g', g'>),   fr: <g, g> / <g', g'>;   g': of the point before
//   w <- start + t d,   t: trials of the line search (line_search.h), one in every step; the first as much lower as the step before gained
// Where d does not go downhill it starts anew along the gradient. For full batches, or ones that are large, as lbfgs; with less memory.
// Law: on a quadratic in n dimensions with exact line searches it ends after n directions.
#include "cohort/optim/line_rule.h"

namespace cohort::optim {
namespace {

class Cg : public LineRule {
 public:
  explicit Cg(const SpecValues& v) : LineRule(v, 0), fletcher_reeves_(v.word("beta") == "fr") {}

 private:
  LineDirection turn(const LineMemory& memory, const LineProducts& p, double accepted) const override {
    LineDirection next{.g = -1, .d = std::max(0.0, (fletcher_reeves_ ? p.gg : p.gy) / memory.gg), .s = {}, .y = {}};
    next.slope = -p.gg + next.d * p.gd;
    next.first_trial = accepted * memory.search.slope0 / next.slope;
    return next;
  }
  bool fletcher_reeves_;
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = line_params("0.1");
    params.push_back({.name = "beta",
                      .type = SpecParam::Type::word,
                      .doc = "share of the direction before: pr, Polak and Ribiere's, not below 0; fr, Fletcher and Reeves'",
                      .preset = "pr",
                      .words = {"pr", "fr"}});
    return SpecSchema{"cg", "conjugate gradients with a line search, for full or large batches", params};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Cg>(values); }

}  // namespace

extern const Rule row_cg{.name = "cg", .schema = schema, .make = build};

}  // namespace cohort::optim
