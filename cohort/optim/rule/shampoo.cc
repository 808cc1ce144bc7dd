// Shampoo (Gupta, Koren and Singer 2018; Anil et al. 2020), with blocks and grafting. G is the block of the gradient, r x c:
//   L <- beta2 L + (1 - beta2) G G^T,   R <- beta2 R + (1 - beta2) G^T G;   sums for beta2 = 1
//   P = L^(-1/p) G R^(-1/p),   p = 2 times the number of axes;   U = P |d| / |P|,   d: the step of `graft`, block by block
//   b <- beta1 b + (1 - beta1) U,   w <- (1 - lr weight_decay) w - lr (b, or with nesterov beta1 b + (1 - beta1) U)
//   graft: sgd, d = g;  adagrad, rmsprop, adam: d = g / (sqrt(s / c) + eps), s <- s + g^2, or the mean, c = 1 - graft_beta2^t for adam;
//          none, U = P
// Roots (matrix_root.h) are of the statistics of every `every`-th step, and count `delay` steps later, waited for: threads have that time
// in the background, and ranks that all update everything share them out. Before its first root a block makes the step d. A root that
// fails leaves the one before in its place.
// Laws: |U| = |d|, block by block; the same step however the loss is scaled, beside d; blocks of one number with beta2 = 1, eps = 0,
// without delay and graft are adagrad.
#include <cmath>

#include "cohort/base/error.h"
#include "cohort/optim/background_roots.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/shampoo_blocks.h"

namespace cohort::optim {
namespace {

template <class T>
struct Copy {
  COHORT_INLINE void operator()(T&, T g, T& u) const { u = g; }
};
template <class T>
struct Graft {
  T keep, fresh, root, eps;
  COHORT_INLINE void operator()(T&, T g, T& s, T& u, T& d) const {
    u = g;
    s = keep * s + fresh * g * g;
    d = g / (std::sqrt(s) / root + eps);
  }
};
template <class T>
struct Step {
  T keep, rate;
  COHORT_INLINE void operator()(T& w, T, T& u) const { w = keep * w - rate * u; }
};
template <class T, bool nesterov>
struct Momentum {
  T keep, rate, beta1, fresh;
  COHORT_INLINE void operator()(T& w, T, T& u, T& b) const {
    b = beta1 * b + fresh * u;
    w = keep * w - rate * (nesterov ? beta1 * b + fresh * u : b);
  }
};

class Shampoo : public Optimizer {
 public:
  explicit Shampoo(const SpecValues& v)
      : lr_(v.real("lr")),
        beta1_(v.real("beta1")),
        beta2_(v.real("beta2")),
        decay_(v.real("weight_decay")),
        graft_beta2_(v.real("graft_beta2")),
        graft_eps_(v.real("graft_eps")),
        block_(static_cast<std::size_t>(v.integer("block"))),
        every_(v.integer("every")),
        delay_(v.integer("delay")),
        root_{.p = static_cast<int>(v.integer("exponent")),
              .eps = v.real("eps"),
              .by = v.word("root") == "eigen" ? RootBy::eigen : RootBy::newton},
        graft_(v.word("graft")),
        nesterov_(v.boolean("nesterov")) {
    if (delay_ > every_)
      throw_failure(Kind::usage, "shampoo: delay {} is longer than every {}: the next roots would be asked for before these are used",
                    delay_, every_);
  }
  std::vector<std::string> state_names() const override {
    std::vector<std::string> names{"statistics", "roots"};
    if (delay_ > 0) names.emplace_back("snapshot");
    if (has_squares()) names.emplace_back("exp_avg_sq");
    if (beta1_ > 0) names.emplace_back("momentum_buffer");
    return names;
  }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    const auto numbers = static_cast<std::int64_t>(ShampooBlocks(tensor.shape, block_).numbers);
    std::vector<StateSpec> all;
    for (auto& name : state_names()) {
      const bool of_elements = name == "exp_avg_sq" || name == "momentum_buffer";
      all.push_back({std::move(name), of_elements ? tensor.shape : cohort::Shape{numbers}, tensor.dtype});
    }
    return all;
  }
  Needs needs() const override { return {.grain = Grain::tensor, .side = delay_ > 0}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

  void prepare(Side& side) override {
    if (delay_ == 0) return;
    const std::int64_t t = side.step().step;
    if (t > 1 && (t - 1) % every_ == 0) roots_.begin(snapshots(side), side);
    if (uses_roots(t) && side.replicated() && side.ranks() > 1) roots_.share(snapshots(side), side);
  }

 private:
  enum : std::size_t { kStatistics, kRoots, kSnapshot };

  bool has_squares() const { return graft_ != "none" && graft_ != "sgd"; }
  bool uses_roots(std::int64_t t) const { return t > delay_ && (t - delay_) % every_ == 0; }

  template <class T>
  Statistic statistic(std::string_view name, const T* numbers, const ShampooSquare& square, int axes) const {
    Statistic s{std::string(name) + "/" + std::to_string(square.first), {}, square.n, root_};
    s.matrix.assign(numbers + square.first, numbers + square.first + square.n * square.n);
    if (root_.p == 0) s.options.p = 2 * axes;
    return s;
  }
  // Of all that this rank updates, as it was at the snapshot.
  std::vector<Statistic> snapshots(Side& side) const {
    std::vector<Statistic> all;
    for (const Slice& s : side.slices()) {
      const ShampooBlocks blocks(s.shape, block_);
      with_real(s.dtype, [&](auto zero) {
        for (const ShampooSquare& square : blocks.squares())
          all.push_back(statistic(s.name, static_cast<const decltype(zero)*>(s.state[kSnapshot]), square, blocks.axes));
      });
    }
    return all;
  }
  // One update of one tensor.
  template <class T>
  struct Call {
    const Slice& s;
    const StepInfo& info;
    ShampooBlocks blocks;
    const Algebra& algebra;
    std::vector<T> u, d;  // the gradient, then the step; the step of the graft

    T* state(std::size_t which) const { return static_cast<T*>(s.state[which]); }
    Matrix<T> block(std::vector<T>& of, const ShampooBlock& b) const {
      return {of.data() + b.row * blocks.columns + b.column, b.rows, b.columns, blocks.columns, 1};
    }
    Matrix<T> left(std::size_t which, const ShampooBlock& b) const { return {state(which) + b.left, b.rows, b.rows}; }
    Matrix<T> right(std::size_t which, const ShampooBlock& b) const { return {state(which) + b.right, b.columns, b.columns}; }
  };
  template <class T, std::size_t States, class Pass>
  static void pass(const Pass& pass, const Slice& s, const StepInfo& info, std::array<void*, States> states) {
    Slice with = s;
    with.state = states;
    for_each_element<T, States>(pass, with, info);
  }

  template <class T>
  void read_gradient(Call<T>& call) const {
    call.u.resize(call.s.count);
    if (!has_squares()) {
      pass<T, 1>(Copy<T>{}, call.s, call.info, {call.u.data()});
      call.d = call.u;
      return;
    }
    call.d.resize(call.s.count);
    const bool sums = graft_ == "adagrad";
    const double root = graft_ == "adam" ? std::sqrt(1 - power(graft_beta2_, call.info.step)) : 1;
    const auto t = [](double x) { return static_cast<T>(x); };
    const Graft<T> graft{t(sums ? 1 : graft_beta2_), t(sums ? 1 : 1 - graft_beta2_), t(root), t(graft_eps_)};
    const std::size_t squares = delay_ > 0 ? kSnapshot + 1 : kSnapshot;
    pass<T, 3>(graft, call.s, call.info, {call.s.state[squares], call.u.data(), call.d.data()});
  }
  template <class T>
  void add_statistics(Call<T>& call) const {
    const auto keep = static_cast<T>(beta2_), fresh = static_cast<T>(beta2_ == 1 ? 1 : 1 - beta2_);
    call.algebra.run(call.blocks.all.size(), [&](std::size_t i) {
      const ShampooBlock& b = call.blocks.all[i];
      const Matrix<T> g = call.block(call.u, b);
      Algebra{}.multiply_symmetric<T>(fresh, g, g.transposed(), keep, call.left(kStatistics, b));
      if (call.blocks.axes == 2) Algebra{}.multiply_symmetric<T>(fresh, g.transposed(), g, keep, call.right(kStatistics, b));
    });
  }
  template <class T>
  void take_roots(const Call<T>& call, std::size_t from) const {
    const auto all = call.blocks.squares();
    call.algebra.run(all.size(), [&](std::size_t i) {
      const Statistic s = statistic(call.s.name, call.state(from), all[i], call.blocks.axes);
      const auto root = roots_.take(s);
      std::ranges::transform(root, call.state(kRoots) + all[i].first, [](double x) { return static_cast<T>(x); });
    });
  }
  template <class T>
  void precondition(Call<T>& call) const {
    call.algebra.run(call.blocks.all.size(), [&](std::size_t i) {
      const ShampooBlock& b = call.blocks.all[i];
      const Matrix<T> u = call.block(call.u, b), d = call.block(call.d, b);
      const bool ready = call.left(kRoots, b).at(0, 0) > 0 && (call.blocks.axes == 1 || call.right(kRoots, b).at(0, 0) > 0);
      if (!ready) return copy(d, 1, u);
      std::vector<T> half(b.rows * b.columns), whole = half;
      Matrix<T> p(half.data(), b.rows, b.columns), q(whole.data(), b.rows, b.columns);
      Algebra{}.multiply<T>(1, call.left(kRoots, b), u, 0, p);
      if (call.blocks.axes == 2) Algebra{}.multiply<T>(1, p, call.right(kRoots, b), 0, q), std::swap(p, q);
      if (graft_ == "none") return copy(p, 1, u);
      const double length = norm(p), factor = length > 0 ? norm(d) / length : 1;
      copy(p, static_cast<T>(factor), u);
    });
  }
  template <class T>
  static void copy(const Matrix<T>& from, std::type_identity_t<T> factor, const Matrix<T>& to) {
    for (std::size_t r = 0; r < from.rows; ++r)
      for (std::size_t c = 0; c < from.columns; ++c) to.at(r, c) = factor * from.at(r, c);
  }
  template <class T>
  static double norm(const Matrix<T>& m) {
    double squares = 0;
    for (std::size_t r = 0; r < m.rows; ++r)
      for (std::size_t c = 0; c < m.columns; ++c) squares += static_cast<double>(m.at(r, c)) * static_cast<double>(m.at(r, c));
    return std::sqrt(squares);
  }
  template <class T>
  void step(Call<T>& call) const {
    StepInfo reading = call.info;
    reading.clear_grad = false;
    const double lr = call.info.lr * call.s.lr_scale;
    const auto t = [](double x) { return static_cast<T>(x); };
    const T keep = t(1 - lr * call.s.weight_decay), rate = t(lr);
    if (beta1_ == 0) return pass<T, 1>(Step<T>{keep, rate}, call.s, reading, {call.u.data()});
    with_flag(nesterov_, [&](auto nesterov) {
      pass<T, 2>(Momentum<T, nesterov()>{keep, rate, t(beta1_), t(1 - beta1_)}, call.s, reading, {call.u.data(), call.s.state.back()});
    });
  }
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    static const Algebra alone;
    Call<T> call{s, info, ShampooBlocks(s.shape, block_), info.algebra != nullptr ? *info.algebra : alone, {}, {}};
    read_gradient(call);
    add_statistics(call);
    if (uses_roots(info.step)) take_roots(call, delay_ > 0 ? kSnapshot : kStatistics);
    if (delay_ > 0 && info.step % every_ == 0) std::copy_n(call.state(kStatistics), call.blocks.numbers, call.state(kSnapshot));
    precondition(call);
    step(call);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }

  double lr_, beta1_, beta2_, decay_, graft_beta2_, graft_eps_;
  std::size_t block_;
  std::int64_t every_, delay_;
  RootOptions root_;
  std::string graft_;
  bool nesterov_;
  mutable BackgroundRoots roots_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "shampoo",
      "gradients divided by the roots of their rows' and columns' second moments, block by block",
      {lr_param("1e-3"),
       share_param("beta1", "0.9", "share of the momentum kept"),
       {.name = "beta2",
        .type = Type::real,
        .doc = "share of the statistics kept; 1: they are sums",
        .preset = "0.999",
        .low = 0,
        .high = 1},
       number_param("eps", "1e-6", "ridge of the statistics, as a share of the largest eigenvalue"),
       weight_decay_param("0", "shrinks w by lr times this"),
       {.name = "block", .type = Type::integer, .doc = "longest side of a block", .preset = "128", .low = 1, .high = 65536},
       {.name = "every", .type = Type::integer, .doc = "steps from roots to roots", .preset = "100", .low = 1, .high = 1e9},
       {.name = "delay",
        .type = Type::integer,
        .doc = "steps that the background has for them, at most `every`; 0: none, the step waits",
        .preset = "50",
        .low = 0,
        .high = 1e9},
       {.name = "root",
        .type = Type::word,
        .doc = "how roots are computed: by eigenvalues, or by Newton's iteration",
        .preset = "eigen",
        .words = {"eigen", "newton"}},
       {.name = "exponent", .type = Type::integer, .doc = "which root; 0: twice the number of axes", .preset = "0", .low = 0, .high = 64},
       {.name = "graft",
        .type = Type::word,
        .doc = "whose step gives a block's step its length",
        .preset = "adam",
        .words = {"none", "sgd", "adagrad", "rmsprop", "adam"}},
       share_param("graft_beta2", "0.999", "share of its mean square kept, of rmsprop and adam"),
       number_param("graft_eps", "1e-8", "added to the root of its mean square"),
       flag_param("nesterov", "look one momentum step ahead")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Shampoo>(values); }

}  // namespace

extern const Rule row_shampoo{.name = "shampoo", .schema = schema, .make = build};

}  // namespace cohort::optim
