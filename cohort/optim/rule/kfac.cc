// K-FAC (Martens and Grosse 2015; Grosse and Martens 2016; Osawa et al. 2019): a natural gradient whose curvature is a Kronecker product
// for every linear layer and convolution. a: what goes into a layer, with a 1 for the bias; d: of one sample's loss, by what comes out:
//   A <- k A + (1 - k) mean a a^T,   G <- k G + (1 - k) mean d d^T,   k = min(1 - 1/n, decay), n: updates of the statistics, this included
//   M = gradient of W | b:  V = the solution of  G V A + damping V = M  (eigen), or of  (G + sqrt(damping)/pi I) V (A + pi sqrt(damping) I)
//       = M,  pi^2 = (tr A / columns) / (tr G / rows)  (inverse)
//   nu = min(1, sqrt(kl_clip / (lr^2 |sum over layers of <V, M>|)))
//   b <- momentum b + nu V + weight_decay w,   w <- w - lr b,   or with nesterov  w <- w - lr (nu V + weight_decay w + momentum b)
// All other tensors, layers with a side above max_dim and those whose names match `skip` are updated with their gradient in place of nu V.
// Statistics are taken every factor_every steps and inverted every inverse_every; before, at every power of two. Between them the older
// ones count. Where all ranks update everything each inversion is done by one rank for all; where tensors are shared out (ZeRO) the rank
// that has W inverts and multiplies, and bias and its step travel. An inversion that fails leaves the one before in its place.
// Laws: the same step for (c W) (x / c) in place of W x, without damping; the statistics do not depend on the batch's size.
#include <map>

#include "cohort/base/text.h"
#include "cohort/optim/elementwise.h"
#include "cohort/optim/exchange.h"
#include "cohort/optim/groups.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/rule/kfac_layer.h"

namespace cohort::optim {
namespace {

template <class T, bool directed, bool nesterov>
struct KfacPass {
  T rate, decay, momentum, factor;  // factor: of V
  COHORT_INLINE void step(T& w, T u, T& b) const {
    u += decay * w;
    b = momentum * b + u;
    w -= rate * (nesterov ? u + momentum * b : b);
  }
  COHORT_INLINE void operator()(T& w, T g, T& b) const { step(w, g, b); }
  COHORT_INLINE void operator()(T& w, T, T& b, T& v) const { step(w, factor * v, b); }
};

template <class T>
struct KfacStaged {
  std::vector<T> factors, inverses;  // empty: those in the state stay
  std::vector<T> direction;          // like the tensor
};

// A layer of the step that is prepared.
struct KfacLayer {
  const TappedLayer* tapped;
  kfac::Size size;
  const Slice *weight = nullptr, *bias = nullptr;  // where this rank updates them
  std::vector<double> fresh{};                     // statistics of this step; empty: none
  std::vector<double> result{};                    // inverses, NaN first in a side that failed; empty: none are due
  std::size_t bias_at = 0, step_at = 0;            // in the exchanges
};

class Kfac : public Optimizer {
 public:
  explicit Kfac(const SpecValues& v)
      : lr_(v.real("lr")),
        momentum_(v.real("momentum")),
        damping_(v.real("damping")),
        kl_clip_(v.real("kl_clip")),
        keep_(v.real("decay")),
        decay_(v.real("weight_decay")),
        factor_every_(v.integer("factor_every")),
        inverse_every_(v.integer("inverse_every")),
        max_dim_(static_cast<std::size_t>(v.integer("max_dim"))),
        eigen_(v.word("by") == "eigen"),
        nesterov_(v.boolean("nesterov")) {
    for (const auto pattern : split(v.text("skip"), ' '))
      if (!pattern.empty()) skip_.emplace_back(pattern);
  }
  std::vector<std::string> state_names() const override { return {"factors", "inverses", "momentum_buffer"}; }
  std::vector<StateSpec> state(const TensorInfo& tensor) const override {
    const StateSpec buffer{"momentum_buffer", tensor.shape, tensor.dtype};
    if (tensor.ndim() < 2 || tensor.numel() == 0) return {buffer};
    const auto rows = static_cast<std::size_t>(tensor.shape[0]), columns = tensor.numel() / rows;
    if (!takes(tensor.name, rows, columns)) return {buffer};
    const kfac::Size size{columns + 1, rows, eigen_};  // room for a bias: only layers tell whether they have one
    return {{"factors", {static_cast<std::int64_t>(size.factors())}, tensor.dtype},
            {"inverses", {static_cast<std::int64_t>(size.inverses())}, tensor.dtype},
            buffer};
  }
  Needs needs() const override { return {.grain = Grain::tensor, .taps = true}; }
  bool watches(std::int64_t step) const override { return due(step, factor_every_); }
  double default_lr() const override { return lr_; }
  double default_weight_decay() const override { return decay_; }

  void prepare(Side& side) override {
    floats_.clear();
    doubles_.clear();
    step_ = side.step().step;
    grad_scale_ = side.step().grad_scale;
    std::vector<KfacLayer> layers = layers_of(side);
    if (due(step_, factor_every_)) take_statistics(side, layers);
    invert(side, layers);
    find_directions(side, layers);
  }

 private:
  enum : std::size_t { kFactors, kInverses };

  bool takes(std::string_view name, std::size_t rows, std::size_t columns) const {
    return rows <= max_dim_ && columns < max_dim_ &&
           std::none_of(skip_.begin(), skip_.end(), [&](const auto& p) { return matches(p, name); });
  }
  static bool due(std::int64_t t, std::int64_t every) { return (t - 1) % every == 0 || (t < every && (t & (t - 1)) == 0); }

  std::vector<KfacLayer> layers_of(Side& side) const {
    std::map<std::string_view, const Slice*> here;
    for (const Slice& s : side.slices()) here[s.name] = &s;
    const auto find = [&](const std::string& name) {
      const auto found = here.find(name);
      return found == here.end() ? nullptr : found->second;
    };
    std::vector<KfacLayer> layers;
    for (const TappedLayer& layer : side.layers()) {
      if (!takes(layer.weight, layer.out, layer.in)) continue;
      layers.push_back({&layer, {layer.in + (layer.bias.empty() ? 0 : 1), layer.out, eigen_}, find(layer.weight), find(layer.bias)});
    }
    return layers;
  }

  template <class T>
  auto& map() {
    if constexpr (sizeof(T) == 4)
      return floats_;
    else
      return doubles_;
  }
  template <class T>
  const auto& map() const {
    if constexpr (sizeof(T) == 4)
      return floats_;
    else
      return doubles_;
  }
  template <class T>
  KfacStaged<T>& staged(const KfacLayer& layer) {
    return map<T>()[layer.tapped->weight];
  }

  // --- statistics
  void take_statistics(Side& side, std::vector<KfacLayer>& layers) {
    for (KfacLayer& layer : layers) {
      auto sums = kfac::statistics(*layer.tapped, layer.size, side.algebra());
      if (side.ranks() > 1) side.sum(piece(std::span(sums)));
      layer.fresh = kfac::unpack(sums, layer.size, side.seen_scale());
      if (layer.weight == nullptr || layer.fresh.empty()) continue;
      with_real(layer.weight->dtype, [&](auto zero) { average<decltype(zero)>(layer); });
    }
  }
  template <class T>
  void average(const KfacLayer& layer) {
    const auto* const old = static_cast<const T*>(layer.weight->state[kFactors]);
    const double updates = 1 + static_cast<double>(step_ - 1) / static_cast<double>(factor_every_);
    const double keep = trace(old, layer.size.columns) > 0 ? std::min(1 - 1 / std::max(2.0, updates), keep_) : 0;
    auto& factors = staged<T>(layer).factors;
    factors.resize(layer.fresh.size());
    for (std::size_t i = 0; i < factors.size(); ++i)
      factors[i] = static_cast<T>(keep * static_cast<double>(old[i]) + (1 - keep) * layer.fresh[i]);
  }
  template <class T>
  static double trace(const T* m, std::size_t n) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(m[i * n + i]);
    return sum;
  }

  // --- inverses
  template <class T>
  const T* factors_of(const KfacLayer& layer) {
    const auto& fresh = staged<T>(layer).factors;
    return fresh.empty() ? static_cast<const T*>(layer.weight->state[kFactors]) : fresh.data();
  }
  void invert(Side& side, std::vector<KfacLayer>& layers) {
    std::vector<Job> jobs;
    for (KfacLayer& layer : layers)
      if (layer.weight != nullptr) with_real(layer.weight->dtype, [&](auto zero) { add_jobs<decltype(zero)>(layer, jobs); });
    if (side.replicated() && side.ranks() > 1)
      side.spread(jobs);
    else
      side.algebra().run(jobs.size(), [&](std::size_t i) { jobs[i].run(); });
    for (KfacLayer& layer : layers)
      if (!layer.result.empty()) with_real(layer.weight->dtype, [&](auto zero) { take<decltype(zero)>(layer); });
  }
  template <class T>
  void add_jobs(KfacLayer& layer, std::vector<Job>& jobs) {
    const T* const factors = factors_of<T>(layer);
    const kfac::Size& size = layer.size;
    const std::size_t columns = size.columns, rows = size.rows;
    const double of_a = trace(factors, columns) / static_cast<double>(columns);
    const double of_g = trace(factors + columns * columns, rows) / static_cast<double>(rows);
    if (!(of_a > 0) || !(due(step_, inverse_every_) || is_new<T>(layer))) return;
    const double pi = of_g > 0 ? std::sqrt(of_a / of_g) : 1, ridge = std::sqrt(damping_);
    layer.result.resize(size.inverses());
    const auto add = [&](const T* from, std::size_t n, double of_side, double* out) {
      jobs.push_back({.cost = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n),
                      .result = piece(std::span(out, size.inverse_of(n))),
                      .run = [=, eigen = eigen_] {
                        if (!kfac::invert({from, from + n * n}, n, eigen, of_side, out)) *out = std::nan("");
                      }});
    };
    add(factors, columns, pi * ridge, layer.result.data());
    add(factors + columns * columns, rows, ridge / pi, layer.result.data() + size.inverse_of(columns));
  }
  template <class T>
  bool is_new(const KfacLayer& layer) const {
    return !has_inverse<T>(static_cast<const T*>(layer.weight->state[kInverses]), layer.size);
  }
  template <class T>
  static bool has_inverse(const T* inverses, const kfac::Size& size) {
    const auto zeros = [](const T* m, std::size_t n) { return std::all_of(m, m + n * n, [](T x) { return x == 0; }); };
    return !zeros(inverses, size.columns) && !zeros(inverses + size.inverse_of(size.columns), size.rows);
  }
  template <class T>
  void take(const KfacLayer& layer) {
    auto& inverses = staged<T>(layer).inverses;
    const auto* const old = static_cast<const T*>(layer.weight->state[kInverses]);
    inverses.assign(old, old + layer.size.inverses());
    const std::size_t split = layer.size.inverse_of(layer.size.columns);
    const auto copy = [&](std::size_t first, std::size_t last) {
      if (std::isnan(layer.result[first])) return;
      for (std::size_t i = first; i < last; ++i) inverses[i] = static_cast<T>(layer.result[i]);
    };
    copy(0, split);
    copy(split, inverses.size());
  }

  // --- directions
  void find_directions(Side& side, std::vector<KfacLayer>& layers) {
    Exchange biases, steps;
    for (KfacLayer& layer : layers) {
      layer.step_at = steps.open(1 + layer.size.rows);
      if (layer.tapped->bias.empty()) continue;
      layer.bias_at = biases.open(layer.size.rows);
      if (layer.bias != nullptr)
        with_real(layer.bias->dtype,
                  [&](auto zero) { biases.put(layer.bias_at, static_cast<const decltype(zero)*>(layer.bias->grad), layer.size.rows); });
    }
    biases.run(side);
    for (KfacLayer& layer : layers)
      if (layer.weight != nullptr)
        with_real(layer.weight->dtype, [&](auto zero) { direct<decltype(zero)>(side.algebra(), layer, biases, steps); });
    steps.run(side);
    product_ = 0;
    for (const KfacLayer& layer : layers) {
      product_ += steps.get(layer.step_at, 0);
      if (layer.bias == nullptr) continue;
      with_real(layer.bias->dtype, [&](auto zero) {
        using T = decltype(zero);
        auto& direction = map<T>()[std::string(layer.bias->name)].direction;
        for (std::size_t i = 0; i < layer.size.rows; ++i) direction.push_back(static_cast<T>(steps.get(layer.step_at, 1 + i)));
      });
    }
  }
  // Of W and its bias: V, and <V, M> with the step of the bias behind it.
  template <class T>
  void direct(const Algebra& algebra, const KfacLayer& layer, const Exchange& biases, Exchange& steps) {
    const std::size_t rows = layer.size.rows, columns = layer.size.columns, in = layer.tapped->in;
    const auto* const g = static_cast<const T*>(layer.weight->grad);
    const auto scale = static_cast<T>(grad_scale_);
    std::vector<T> m(rows * columns);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < in; ++j) m[i * columns + j] = scale * g[i * in + j];
      if (columns > in) m[i * columns + in] = scale * static_cast<T>(biases.get(layer.bias_at, i));
    }
    std::vector<T> v = m;
    auto& here = staged<T>(layer);
    const T* const inverses = here.inverses.empty() ? static_cast<const T*>(layer.weight->state[kInverses]) : here.inverses.data();
    if (has_inverse(inverses, layer.size)) kfac::precondition(algebra, layer.size, inverses, static_cast<T>(damping_), v);
    std::vector<double> numbers(1 + rows);  // <V, M>, the step of the bias
    for (std::size_t i = 0; i < v.size(); ++i) numbers[0] += static_cast<double>(v[i]) * static_cast<double>(m[i]);
    here.direction.resize(rows * in);
    for (std::size_t i = 0; i < rows; ++i) {
      std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(i * columns), in, here.direction.begin() + static_cast<std::ptrdiff_t>(i * in));
      if (columns > in) numbers[1 + i] = static_cast<double>(v[i * columns + in]);
    }
    steps.put(layer.step_at, numbers.data(), numbers.size());
  }

  // --- the update
  double kl_factor(const StepInfo& info) const {
    const double clip = grad_scale_ != 0 ? info.grad_scale / grad_scale_ : 1;
    const double size = info.lr * info.lr * clip * clip * std::abs(product_);
    return clip * (kl_clip_ > 0 && size > kl_clip_ ? std::sqrt(kl_clip_ / size) : 1);
  }
  template <class T>
  void run(const Slice& s, const StepInfo& info) const {
    const auto& all = map<T>();
    const auto found = step_ == info.step ? all.find(s.name) : all.end();
    const bool directed = found != all.end() && found->second.direction.size() == s.count;
    const auto t = [](double x) { return static_cast<T>(x); };
    Slice with = s;
    std::array<void*, 2> states{s.state.back(), directed ? const_cast<T*>(found->second.direction.data()) : nullptr};  // is only read
    with.state = states;
    with_flag(nesterov_, [&](auto nesterov) {
      const KfacPass<T, false, nesterov()> pass{t(info.lr * s.lr_scale), t(s.weight_decay), t(momentum_),
                                                directed ? t(kl_factor(info)) : 0};
      directed ? for_each_element<T, 2>(pass, with, info) : for_each_element<T, 1>(pass, with, info);
    });
    if (!directed) return;
    const auto keep = [&](const std::vector<T>& fresh, std::size_t which) {
      if (!fresh.empty()) std::copy(fresh.begin(), fresh.end(), static_cast<T*>(s.state[which]));
    };
    keep(found->second.factors, kFactors);
    keep(found->second.inverses, kInverses);
  }
  void apply(const Slice& s, const StepInfo& info) const override {
    with_real(s.dtype, [&](auto zero) { run<decltype(zero)>(s, info); });
  }

  double lr_, momentum_, damping_, kl_clip_, keep_, decay_;
  std::int64_t factor_every_, inverse_every_;
  std::size_t max_dim_;
  bool eigen_, nesterov_;
  std::vector<std::string> skip_;
  // --- of the step that was prepared last
  std::int64_t step_ = 0;
  double grad_scale_ = 1, product_ = 0;  // sum over layers of <V, M>
  std::map<std::string, KfacStaged<float>, std::less<>> floats_;
  std::map<std::string, KfacStaged<double>, std::less<>> doubles_;
};

const SpecSchema& schema() {
  using Type = SpecParam::Type;
  static const SpecSchema schema{
      "kfac",
      "natural gradient: layers' gradients divided by the second moments of what goes in and of the gradients of what comes out",
      {lr_param("3e-2"),
       {.name = "momentum", .type = Type::real, .doc = "share of the buffer kept", .preset = "0.9", .low = 0, .high = 1},
       {.name = "damping", .type = Type::real, .doc = "added to the curvature: larger ones trust it less", .preset = "0.1", .low = 1e-12},
       number_param("kl_clip", "1e-3", "longest step, in the curvature's own measure; 0: no limit"),
       share_param("decay", "0.95", "share of the statistics kept"),
       weight_decay_param("0", "part of the step, times w"),
       {.name = "factor_every", .type = Type::integer, .doc = "steps from statistics to statistics", .preset = "5", .low = 1, .high = 1e9},
       {.name = "inverse_every", .type = Type::integer, .doc = "steps from inverses to inverses", .preset = "50", .low = 1, .high = 1e9},
       {.name = "by",
        .type = Type::word,
        .doc = "eigen: eigenvectors of the statistics, exact damping; inverse: their inverses with the damping split, quicker",
        .preset = "inverse",
        .words = {"eigen", "inverse"}},
       {.name = "max_dim",
        .type = Type::integer,
        .doc = "layers with more inputs or outputs are updated by their gradient",
        .preset = "4096",
        .low = 2,
        .high = 65536},
       {.name = "skip",
        .type = Type::text,
        .doc = "patterns of tensors that are, too, with blanks between them: embeddings",
        .preset = "wte.* wpe.* embed.* *.embed.*"},
       flag_param("nesterov", "look one momentum step ahead")}};
  return schema;
}
std::unique_ptr<Optimizer> build(const SpecValues& values) { return std::make_unique<Kfac>(values); }

}  // namespace

extern const Rule row_kfac{.name = "kfac", .schema = schema, .make = build};

}  // namespace cohort::optim
