// What rules with a line search have in common (lbfgs, cg). A training step is one evaluation: it has the loss and the gradient of the
// point that the step before went to, and goes to the next one, a further trial along the direction or the first one along a new direction.
//   g: gradient + weight_decay w,   f: loss + weight_decay |w|^2 / 2;   w = start + sqrt(lr_scale) trial d,   so that a tensor's lr_scale
//   is its diagonal of the first curvature
// All that is decided follows from f and from products of vectors over all tensors. These are added up tensor by tensor in the model's
// order, on every rank, so all ranks and every copy of the state take the same branch, with the same bits for any number of them (given the
// gradient's). The numbers of the search lie in the state of every tensor, as pairs of which the second has the digits that the first lost.
// Owner: the rules. Threads: as Optimizer. Failure: none; without progress along the gradient itself it stays where it is.
#pragma once
#include <cmath>

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exchange.h"
#include "cohort/optim/line_search.h"
#include "cohort/optim/rule.h"

namespace cohort::optim {

// Products of vectors over all tensors. g: gradient; d: direction; y: what g changed by since the last point that was accepted.
struct LineProducts {
  static constexpr std::size_t kFixed = 8, kEach = 6;
  double gg, gd, gy, yy, yd, dd, decay, g1;  // decay: weight_decay |w|^2 / 2; g1: sum of absolute values
  struct Pair {
    double g_s, g_y, y_s, y_y, d_s, d_y;  // with a step s and the change y of gradients that belongs to it
  };
  std::vector<Pair> pairs;
};

// What a line search is of. Kept from step to step.
struct LineMemory {
  static constexpr std::size_t kFixed = LineSearch::kNumbers + 5;
  LineSearch search{};
  double begun = 0, pairs = 0, newest = -1, steepest = 0, gg = 0;  // gg: of the last point that was accepted
  std::vector<double> ss, sy, yy;                                  // memory x memory: sy[i, j] = <s_i, y_j>

  explicit LineMemory(std::size_t memory) : ss(memory * memory), sy(ss), yy(ss) {}
  template <class T>
  void read(const T* from);
  template <class T>
  void write(T* to) const;
};

// Where to go: d <- g g + d d + sum of s and y times theirs.
struct LineDirection {
  double g = -1, d = 0, slope = 0, first_trial = 1;
  std::vector<double> s{}, y{};
};

class LineRule : public Optimizer {
 public:
  LineRule(const SpecValues& v, std::size_t memory)
      : memory_(memory), lr_(v.real("lr")), decay_(v.real("weight_decay")), c2_(v.real("c2")), least_gradient_(v.real("gtol")) {}
  std::vector<std::string> state_names() const override {
    if (memory_ == 0) return {"start", "direction", "previous_gradient", "search"};
    return {"start", "direction", "previous_gradient", "search", "steps", "changes"};
  }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    const auto numbers = static_cast<std::int64_t>(2 * (LineMemory::kFixed + 3 * memory_ * memory_));
    const auto all = static_cast<std::int64_t>(memory_ * tensor.numel());
    std::vector<StateSpec> specs;
    for (auto& name : state_names()) {
      const bool long_run = name == "steps" || name == "changes";
      const cohort::Shape shape = name == "search" ? cohort::Shape{numbers} : long_run ? cohort::Shape{all} : tensor.shape;
      specs.push_back({std::move(name), shape, tensor.dtype});
    }
    return specs;
  }
  Needs needs() const override { return {.grain = Grain::tensor, .side = true, .loss = true}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

  void prepare(Side& side) override {
    const std::size_t n = LineProducts::kFixed + LineProducts::kEach * memory_;
    Exchange exchange;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < side.tensors(); ++i) places.push_back(exchange.open(n));
    for (std::size_t k = 0; k < side.slices().size(); ++k)
      exchange.put(places[side.orders()[k]], measured(side.slices()[k], side.step().grad_scale).data(), n);
    exchange.run(side);
    totals_.assign(n, 0);
    for (const std::size_t place : places)
      for (std::size_t i = 0; i < n; ++i) totals_[i] += exchange.get(place, i);
    step_ = side.step().step;
  }

 protected:
  // The accepted point's gradient and the direction before it: the next one. `slot`: of the newest pair; accepted: how far it went.
  virtual LineDirection turn(const LineMemory& memory, const LineProducts& products, double accepted) const = 0;
  const std::size_t memory_;

 private:
  enum : std::size_t { kStart, kDirection, kPrevious, kSearch, kSteps, kChanges };
  struct Move {
    enum { hold, trial, turn, back } kind = hold;  // back: to the start, and from there along the gradient
    double at = 0, accepted = 0;                   // at: the next trial
    int slot = -1;                                 // of the pair that is kept; none: -1
    LineDirection direction{};
  };

  template <class T>
  struct View {
    T *w, *g, *start, *d, *previous, *steps, *changes;
    std::size_t n;
    double scale, decay, root;

    View(const Slice& s, double grad_scale)
        : w(static_cast<T*>(s.param)),
          g(static_cast<T*>(s.grad)),
          start(at(s, kStart)),
          d(at(s, kDirection)),
          previous(at(s, kPrevious)),
          steps(s.state.size() > kSteps ? at(s, kSteps) : nullptr),
          changes(s.state.size() > kSteps ? at(s, kChanges) : nullptr),
          n(s.count),
          scale(grad_scale),
          decay(s.weight_decay),
          root(std::sqrt(s.lr_scale)) {}
    static T* at(const Slice& s, std::size_t k) { return static_cast<T*>(s.state[k]); }
    double gradient(std::size_t i) const { return root * (scale * static_cast<double>(g[i]) + decay * static_cast<double>(w[i])); }
  };

  std::vector<double> measured(const Slice& s, double grad_scale) const;
  template <class T>
  std::vector<double> measured_in(const View<T>& v) const;
  LineProducts products_of(const std::vector<double>& totals) const;
  Move decide(LineMemory& memory, const LineProducts& p, double loss) const;
  Move begin_line(LineMemory& memory, const LineProducts& p, double f, double gg, LineDirection direction) const;
  int keep_pair(LineMemory& memory, LineProducts& p, double a) const;
  template <class T>
  void move(const View<T>& v, const Move& m) const;
  template <class T>
  void run(const Slice& s, const StepInfo& info) const;
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }

  double lr_, decay_, c2_, least_gradient_;
  std::vector<double> totals_;  // of the step that was prepared last
  std::int64_t step_ = 0;
};

// The parameters that such rules share.
std::vector<SpecParam> line_params(std::string_view c2);

}  // namespace cohort::optim
