// L-BFGS (Liu and Nocedal 1989), vector-free (Chen, Wang and Zhou 2014), with a line search for the strong Wolfe conditions. Of the last
// `memory` points that were accepted: s = what w moved by, y = what the gradient changed by.
//   d = -H g, by the two-loop recursion in coefficients of s, y and g, which need products of these vectors only
//       q = g;  newest to oldest: a_i = <s_i, q> / <s_i, y_i>, q -= a_i y_i;  q *= <s, y> / <y, y> of the newest
//       oldest to newest: q += (a_i - <y_i, q> / <s_i, y_i>) s_i;   d = -q
//   w <- start + t d,  t: trials of the line search (line_search.h), one in every step
// For full batches, or ones that are large: a line search compares losses, and those of other samples are another function. Pairs with
// <s, y> <= 1e-10 |y|^2 are left out; where d does not go downhill it starts anew along the gradient.
// Law: on a quadratic in n dimensions with memory >= n and exact line searches it ends after n directions, those of conjugate gradients.
#include "cohort/optim/line_rule.h"

namespace cohort::optim {
namespace {

class Lbfgs : public LineRule {
 public:
  explicit Lbfgs(const SpecValues& v) : LineRule(v, static_cast<std::size_t>(v.integer("memory"))) {}

 private:
  LineDirection turn(const LineMemory& memory, const LineProducts& p, double) const override {
    const std::size_t m = memory_;
    LineDirection q{.g = 1, .s = std::vector<double>(m), .y = std::vector<double>(m)};
    std::vector<std::size_t> slots;  // newest first
    for (std::size_t k = 0; k < static_cast<std::size_t>(memory.pairs); ++k)
      slots.push_back((static_cast<std::size_t>(memory.newest) + m - k) % m);
    const auto times_s = [&](std::size_t i) {  // <s_i, q>
      double sum = q.g * p.pairs[i].g_s;
      for (const std::size_t j : slots) sum += q.s[j] * memory.ss[i * m + j] + q.y[j] * memory.sy[i * m + j];
      return sum;
    };
    const auto times_y = [&](std::size_t i) {  // <y_i, q>
      double sum = q.g * p.pairs[i].g_y;
      for (const std::size_t j : slots) sum += q.s[j] * memory.sy[j * m + i] + q.y[j] * memory.yy[i * m + j];
      return sum;
    };
    std::vector<double> a(m);
    for (const std::size_t i : slots) q.y[i] -= a[i] = times_s(i) / memory.sy[i * m + i];
    if (!slots.empty()) scale(q, memory.sy[slots[0] * m + slots[0]] / memory.yy[slots[0] * m + slots[0]]);
    for (auto i = slots.rbegin(); i != slots.rend(); ++i) q.s[*i] += a[*i] - times_y(*i) / memory.sy[*i * m + *i];
    scale(q, -1);
    q.slope = q.g * p.gg;
    for (const std::size_t i : slots) q.slope += q.s[i] * p.pairs[i].g_s + q.y[i] * p.pairs[i].g_y;
    return q;
  }
  static void scale(LineDirection& q, double by) {
    q.g *= by;
    for (auto* all : {&q.s, &q.y})
      for (double& x : *all) x *= by;
  }
};

const SpecSchema& schema() {
  static const SpecSchema schema = [] {
    auto params = line_params("0.9");
    params.push_back({.name = "memory",
                      .type = SpecParam::Type::integer,
                      .doc = "pairs of vectors that the curvature is known by",
                      .preset = "10",
                      .low = 1,
                      .high = 100});
    return SpecSchema{"lbfgs", "quasi-Newton steps with a line search, for full or large batches", params};
  }();
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Lbfgs>(values); }

}  // namespace

extern const Rule row_lbfgs{.name = "lbfgs", .schema = schema, .make = build};

}  // namespace cohort::optim
