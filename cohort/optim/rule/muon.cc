// Muon (Jordan et al. 2024), in torch's form, for tensors of two dimensions and more; a filter is a matrix with a row for each output:
//   b <- b + (1 - momentum) (g - b),   u = b,   or with nesterov   u = b + (1 - momentum) (g - b)
//   x = u / max(|u|, eps);   ns_steps times   a = x x^T,   x <- 3.4445 x + (-4.7750 a + 2.0315 a a) x;   the shorter side is that of rows
//   w <- (1 - lr weight_decay) w - lr k x,   k = sqrt(max(1, rows / columns)) or, match_rms_adamw, 0.2 sqrt(max(rows, columns))
// All other tensors, and those whose names match one of the patterns `adamw`, are updated by AdamW, its rate in proportion to the
// schedule's.
// Law: however the gradient is scaled the step is the same, and its singular values lie between 0.68 and 1.13 lr k, except
// those that are tiny beside the largest. Products are made in the type of the parameter (torch: in bf16). The default rate is the
// paper's; torch's, 1e-3, is for match_rms_adamw: without it a step moves a matrix of 512 x 512 by a twentieth of what adamw's first does.
#include <cmath>

#include "cohort/base/text.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/adam.h"

namespace cohort::optim {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // steepest at zero, where small singular values begin

template <class T, bool nesterov>
struct Momentum {
  T fresh;
  COHORT_INLINE void operator()(T&, T g, T& b, T& u) const {
    b += fresh * (g - b);
    u = nesterov ? b + fresh * (g - b) : b;
  }
};
template <class T>
struct Divide {
  T by;
  COHORT_INLINE void operator()(T&, T, T& u) const { u /= by; }
};
template <class T>
struct Step {
  T keep, rate;
  COHORT_INLINE void operator()(T& w, T, T& x) const { w = keep * w - rate * x; }
};

class Muon : public Optimizer {
 public:
  explicit Muon(const SpecValues& v)
      : lr_(v.real("lr")),
        momentum_(v.real("momentum")),
        eps_(v.real("eps")),
        decay_(v.real("weight_decay")),
        adamw_lr_(v.real("adamw_lr")),
        betas_{v.real("adamw_beta1"), v.real("adamw_beta2"), v.real("adamw_eps")},
        steps_(static_cast<int>(v.integer("ns_steps"))),
        nesterov_(v.boolean("nesterov")),
        match_rms_(v.word("adjust_lr_fn") == "match_rms_adamw") {
    for (const auto pattern : split(v.text("adamw"), ' '))
      if (!pattern.empty()) patterns_.emplace_back(pattern);
  }
  std::vector<std::string> state_names() const override { return {"momentum_buffer", "exp_avg", "exp_avg_sq"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    if (is_matrix(tensor.name, tensor.ndim())) return {{"momentum_buffer", tensor.shape, tensor.dtype}};
    return {{"exp_avg", tensor.shape, tensor.dtype}, {"exp_avg_sq", tensor.shape, tensor.dtype}};
  }
  Needs needs() const override { return {.grain = Grain::tensor}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

 private:
  bool is_matrix(std::string_view name, std::size_t dimensions) const {
    return dimensions >= 2 && std::none_of(patterns_.begin(), patterns_.end(), [&](const auto& p) { return matches(p, name); });
  }
  double factor(double rows, double columns) const {
    return match_rms_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
  }

  // What the passes see as state: runs of this call beside those of the rule.
  template <class T, std::size_t States, class Pass>
  static void pass(const Pass& pass, const Slice& s, const StepInfo& info, std::array<void*, States> states) {
    Slice with = s;
    with.state = states;
    for_each_element<T, States>(pass, with, info);
  }

  // u moves towards the nearest matrix with orthogonal rows; `wide`: rows no more than columns.
  template <class T>
  void orthogonalise(const Algebra& algebra, std::vector<T>& u, std::size_t rows, std::size_t columns) const {
    std::vector<T> polynomial, next;
    const bool wide = rows <= columns;
    const std::size_t m = std::min(rows, columns), n = std::max(rows, columns);
    const auto view = [&](std::vector<T>& x) { return wide ? Matrix<T>(x.data(), m, n) : Matrix<T>(x.data(), n, m).transposed(); };
    std::vector<T> a(m * m);
    for (int i = 0; i < steps_; ++i) {
      algebra.multiply_symmetric<T>(1, view(u), view(u).transposed(), 0, {a.data(), m, m});
      polynomial = a;
      algebra.multiply_symmetric<T>(static_cast<T>(kC), {a.data(), m, m}, {a.data(), m, m}, static_cast<T>(kB), {polynomial.data(), m, m});
      next = u;
      algebra.multiply<T>(1, {polynomial.data(), m, m}, view(u), static_cast<T>(kA), view(next));
      u.swap(next);
    }
  }

  template <class T>
  void update_matrix(const Slice& s, const StepInfo& info) const {
    const auto rows = static_cast<std::size_t>(s.shape[0]), columns = s.count / rows;
    std::vector<T> u(s.count);
    const auto fresh = static_cast<T>(1 - momentum_);
    with_flag(nesterov_, [&](auto nesterov) { pass<T, 2>(Momentum<T, nesterov()>{fresh}, s, info, {s.state[0], u.data()}); });
    StepInfo reading = info;
    reading.clear_grad = false;
    const double length = std::max(std::sqrt(squared_norm(u.data(), u.size(), s.dtype)), eps_);
    pass<T, 1>(Divide<T>{static_cast<T>(length)}, s, reading, {u.data()});
    static const Algebra alone;
    orthogonalise(info.algebra != nullptr ? *info.algebra : alone, u, rows, columns);
    const double lr = info.lr * s.lr_scale, rate = lr * factor(static_cast<double>(rows), static_cast<double>(columns));
    pass<T, 1>(Step<T>{static_cast<T>(1 - lr * s.weight_decay), static_cast<T>(rate)}, s, reading, {u.data()});
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (is_matrix(s.name, s.shape.size())) return update_matrix<T>(s, info);
      const double share = lr_ > 0 ? adamw_lr_ / lr_ : 0;
      for_each_element<T, 2>(adam_pass<T, true>(betas_, info.lr * s.lr_scale * share, s.weight_decay, info.step), s, info);
    });
  }
  double lr_, momentum_, eps_, decay_, adamw_lr_;
  Betas betas_;
  int steps_;
  bool nesterov_, match_rms_;
  std::vector<std::string> patterns_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  constexpr double kBelowOne = 0.99999999999;  // a moment that takes nothing in would never start
  static const SpecSchema schema{
      "muon",
      "momentum made orthogonal for matrices, adamw for everything else",
      {lr_param("2e-2"),
       weight_decay_param("0.1", "shrinks w by lr times this"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0.95", .low = 0, .high = kBelowOne},
       {.name = "nesterov", .type = Type::boolean, .doc = "look one momentum step ahead", .preset = "true"},
       {.name = "eps", .type = Type::real, .doc = "least norm that a matrix is divided by", .preset = "1e-7", .low = 1e-30},
       {.name = "ns_steps", .type = Type::integer, .doc = "Newton-Schulz iterations", .preset = "5", .low = 1, .high = 99},
       {.name = "adjust_lr_fn",
        .type = Type::word,
        .doc = "how the rate follows the shape: original, sqrt(max(1, rows / columns)); match_rms_adamw, 0.2 sqrt(max(rows, columns)), for "
               "rates and decays found for adamw",
        .preset = "original",
        .words = {"original", "match_rms_adamw"}},
       {.name = "adamw",
        .type = Type::text,
        .doc = "patterns of tensors that adamw updates whatever their shape, with blanks between them: embeddings and heads",
        .preset = "wte.* wpe.* embed.* *.embed.* head.* *.head.* lm_head.*"},
       {.name = "adamw_lr", .type = Type::real, .doc = "adamw's rate while the schedule's is lr", .preset = "3e-4", .low = 0},
       {.name = "adamw_beta1", .type = Type::real, .doc = "share of its first moment kept", .preset = "0.9", .low = 0, .high = kBelowOne},
       {.name = "adamw_beta2", .type = Type::real, .doc = "share of its second moment kept", .preset = "0.95", .low = 0, .high = kBelowOne},
       {.name = "adamw_eps", .type = Type::real, .doc = "added to the root of that", .preset = "1e-10", .low = 0}}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Muon>(values); }

}  // namespace

extern const Rule row_muon{.name = "muon", .schema = schema, .make = build};

}  // namespace cohort::optim
