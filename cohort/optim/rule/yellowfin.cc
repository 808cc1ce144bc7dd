// YellowFin (Zhang and Mitliagkas 2017): momentum that tunes its share and its rate. g: the gradient of all tensors together, its norm
// at most sqrt(100 h_max); E: running means with `beta`, debiased by 1 - beta^t:
//   h_min, h_max = exp E log of the least and the largest |g|^2 of the last 20 steps;   C = max(E |g|^2 - |E g|^2, 1e-6)
//   D = E (E |g| / E |g|^2);   momentum and rate: yellowfin.h
//   b <- momentum b - min(rate, 100 / |g|) lr min(1, (t + 1) / 200) (g + weight_decay w),   w <- w + b
// lr is a factor, 1 as it stands, that schedules multiply. Statistics are of the gradient before engine.clip_norm, over all ranks.
// Law: the step does not depend on how tensors are cut or shared out; h_min = 1, h_max = 100, C -> 0 give a momentum of 0.669.
#include "cohort/optim/rule/yellowfin.h"

#include "cohort/optim/elementwise.h"
#include "cohort/optim/exact_math.h"
#include "cohort/optim/exchange.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/wide.h"

namespace cohort::optim {
namespace {

constexpr std::size_t kWindow = 20;
constexpr double kLeastVariance = 1e-6, kMostGrowth = 100, kLongest = 100, kSlowSteps = 200, kLeastSquare = 1e-30;

template <class T>
struct YellowFinPass {
  T clip, decay, keep, fresh, momentum, rate;
  COHORT_INLINE void operator()(T& w, T g, T& mean, T& b) const {
    g = clip * (g + decay * w);
    mean = keep * mean + fresh * g;
    b = momentum * b - rate * g;
    w += b;
  }
};

// Of the gradient and of its running mean, over all tensors.
struct YellowFinSums {
  double gg = 0, gm = 0, mm = 0;
};

// What is kept from step to step.
struct YellowFinNumbers {
  static constexpr std::size_t kCount = kWindow + 5;
  std::array<double, kWindow> window{};
  double log_min = 0, log_max = 0, squares = 0, norms = 0, distance = 0;

  template <class Call>
  void each(Call call) {
    for (double& h : window) call(h);
    for (double* x : {&log_min, &log_max, &squares, &norms, &distance}) call(*x);
  }
};

struct YellowFinStep {
  double clip, momentum, rate;
};

class YellowFin : public Optimizer {
 public:
  explicit YellowFin(const SpecValues& v) : lr_(v.real("lr")), decay_(v.real("weight_decay")), beta_(v.real("beta")) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "momentum_buffer", "tuner"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    return {{"exp_avg", tensor.shape, tensor.dtype},
            {"momentum_buffer", tensor.shape, tensor.dtype},
            {"tuner", {static_cast<std::int64_t>(2 * YellowFinNumbers::kCount)}, tensor.dtype}};
  }
  Needs needs() const override { return {.grain = Grain::tensor, .side = true}; }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

  void prepare(Side& side) override {
    constexpr std::size_t kSums = 3;
    Exchange exchange;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < side.tensors(); ++i) places.push_back(exchange.open(kSums));
    for (std::size_t k = 0; k < side.slices().size(); ++k) {
      const YellowFinSums sums = measured(side.slices()[k], side.step().grad_scale);
      const double numbers[kSums] = {sums.gg, sums.gm, sums.mm};
      exchange.put(places[side.orders()[k]], numbers, kSums);
    }
    exchange.run(side);
    totals_ = {};
    for (const std::size_t place : places)
      totals_.gg += exchange.get(place, 0), totals_.gm += exchange.get(place, 1), totals_.mm += exchange.get(place, 2);
    step_ = side.step().step;
  }

 private:
  static YellowFinSums measured(const Slice& s, double grad_scale) {
    YellowFinSums sums;
    with_real(s.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto *w = static_cast<const T*>(s.param), *g = static_cast<const T*>(s.grad), *mean = static_cast<const T*>(s.state[0]);
      for (std::size_t i = 0; i < s.count; ++i) {
        const double x = grad_scale * static_cast<double>(g[i]) + s.weight_decay * static_cast<double>(w[i]);
        const auto m = static_cast<double>(mean[i]);
        sums.gg += x * x;
        sums.gm += x * m;
        sums.mm += m * m;
      }
    });
    return sums;
  }
  YellowFinStep tune(YellowFinNumbers& n, YellowFinSums s, std::int64_t t) const {
    const double before = 1 - power(beta_, t - 1), debias = 1 - power(beta_, t);
    const double most = t > 1 ? std::sqrt(kMostGrowth * real_exp(n.log_max / before)) : INFINITY, length = std::sqrt(s.gg);
    const double clip = length > most ? most / length : 1;
    s.gg *= clip * clip, s.gm *= clip;
    n.window[static_cast<std::size_t>(t - 1) % kWindow] = std::max(s.gg, kLeastSquare);
    const auto last = n.window.begin() + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(t), kWindow);
    const auto mean = [&](double& of, double value) { return (of = beta_ * of + (1 - beta_) * value) / debias; };
    const double h_min = real_exp(mean(n.log_min, real_log(*std::min_element(n.window.begin(), last))));
    const double h_max = real_exp(mean(n.log_max, real_log(*std::max_element(n.window.begin(), last))));
    const double squares = std::max(mean(n.squares, s.gg), kLeastSquare), norms = mean(n.norms, std::sqrt(s.gg));
    const double distance = mean(n.distance, norms / squares), fresh = 1 - beta_;
    const double of_mean = (beta_ * beta_ * s.mm + 2 * beta_ * fresh * s.gm + fresh * fresh * s.gg) / (debias * debias);
    const YellowFinTuned tuned = yellowfin_tuned(h_min, std::max(h_max, h_min), std::max(squares - of_mean, kLeastVariance), distance);
    const double rate = s.gg > 0 ? std::min(tuned.rate, kLongest / std::sqrt(s.gg)) : tuned.rate;
    return {clip, tuned.momentum, rate * std::min(1.0, static_cast<double>(t + 1) / kSlowSteps)};
  }
  static double real_exp(double x) { return real_power(2.718281828459045235, x); }

  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    auto* kept = static_cast<T*>(s.state[2]);
    YellowFinNumbers numbers;
    numbers.each([&, from = kept](double& x) mutable { x = read_wide(from), from += 2; });
    const YellowFinStep step = tune(numbers, step_ == info.step ? totals_ : measured(s, info.grad_scale), info.step);
    numbers.each([&, to = kept](double& x) mutable { write_wide(to, x), to += 2; });
    Slice with = s;
    with.state = s.state.first(2);
    const auto t = [](double x) { return static_cast<T>(x); };
    const YellowFinPass<T> pass{t(step.clip), t(s.weight_decay), t(beta_),
                                t(1 - beta_), t(step.momentum),  t(step.rate * info.lr * s.lr_scale)};
    for_each_element<T, 2>(pass, with, info);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }

  double lr_, decay_, beta_;
  YellowFinSums totals_;  // of the step that was prepared last
  std::int64_t step_ = 0;
};

const SpecSchema& schema() {
  static const SpecSchema schema{
      "yellowfin",
      "momentum that finds its rate and its share by itself",
      {{.name = "lr", .type = SpecParam::Type::real, .doc = "factor of the rate that it finds", .preset = "1", .low = 0},
       share_param("beta", "0.999", "share of what was measured kept"),
       weight_decay_param("0", "added to the gradient, times w")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<YellowFin>(values); }

}  // namespace

extern const Rule row_yellowfin{.name = "yellowfin", .schema = schema, .make = build};

}  // namespace cohort::optim
