#include <gmock/gmock.h>

#include "cohort/optim/rule/kfac_layer.h"
#include "cohort/optim/side_testing.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

using Numbers = std::vector<double>;

// x with m x = y, by elimination with pivots.
Numbers solved(Numbers m, Numbers y) {
  const std::size_t n = y.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(m[i * n + k]) > std::abs(m[best * n + k])) best = i;
    for (std::size_t j = 0; j < n; ++j) std::swap(m[k * n + j], m[best * n + j]);
    std::swap(y[k], y[best]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double f = m[i * n + k] / m[k * n + k];
      for (std::size_t j = k; j < n; ++j) m[i * n + j] -= f * m[k * n + j];
      y[i] -= f * y[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) y[k] -= m[k * n + j] * y[j];
    y[k] /= m[k * n + k];
  }
  return y;
}

constexpr std::size_t kIn = 4, kOut = 3, kRows = 5;

// A linear layer with a bias, and what it sees in a step on one rank.
template <class T>
struct Layer {
  explicit Layer(const Optimizer& rule, std::string name = "fc")
      : w(rule, TensorInfo{name + ".weight", {kOut, kIn}, kReal<T>}),
        b(rule, TensorInfo{name + ".bias", {kOut}, kReal<T>}),
        x(kRows * kIn),
        d(kRows * kOut),
        tapped{name + ".weight", name + ".bias", kIn, kOut} {}

  void draw(std::mt19937& random) {
    for (auto* values : {&x, &d}) fill_normal(*values, random);
    tapped.seen = {{piece(std::span(x)), piece(std::span(d)), kRows, kRows}};
  }
  // Of W | b.
  Numbers matrix(const std::vector<T>& of_w, const std::vector<T>& of_b) const {
    Numbers m;
    for (std::size_t i = 0; i < kOut; ++i) {
      m.insert(m.end(), of_w.begin() + static_cast<std::ptrdiff_t>(i * kIn), of_w.begin() + static_cast<std::ptrdiff_t>((i + 1) * kIn));
      m.push_back(of_b[i]);
    }
    return m;
  }
  void update(const Optimizer& rule, const StepInfo& info, const Slice& group = {}) {
    w.update(rule, info, group);
    b.update(rule, info, group);
  }
  Field<T> w, b;
  std::vector<T> x, d;
  TappedLayer tapped;
};

// What a rule of one rank is offered for these layers.
template <class T>
void offer(TestSide& side, std::vector<Layer<T>>& layers, const StepInfo& info, std::vector<std::vector<void*>>& states, int of = 1) {
  side.info = info;
  side.own.clear();
  side.seen.clear();
  states.assign(2 * layers.size(), {});
  for (std::size_t k = 0; k < layers.size(); ++k) {
    side.seen.push_back(layers[k].tapped);
    for (std::size_t part = 0; part < 2; ++part) {
      auto& field = part == 0 ? layers[k].w : layers[k].b;
      if (static_cast<int>(2 * k + part) % of == side.rank() % of)
        side.own.push_back(field.slice(0, field.w.size(), {}, states[2 * k + part]));
    }
  }
}

// W | b by the formula, in double; the curvature as one dense matrix.
struct Reference {
  bool eigen;
  double damping, kl_clip, momentum = 0.9, keep = 0.8;
  int factor_every, inverse_every;
  Numbers w, b = Numbers(w.size()), a{}, g{}, used_a{}, used_g{};
  static constexpr std::size_t kColumns = kIn + 1;

  static bool due(int t, int every) { return (t - 1) % every == 0 || (t == 2 && every > 2); }  // `every` is at most 4
  void average(Numbers& to, const std::vector<Numbers>& rows, double factor, double k) const {
    const std::size_t n = rows[0].size();
    if (to.empty()) to.resize(n * n), k = 0;
    for (std::size_t i = 0; i < n * n; ++i) {
      double sum = 0;
      for (const Numbers& r : rows) sum += factor * r[i / n] * r[i % n];
      to[i] = k * to[i] + (1 - k) * sum;
    }
  }
  Numbers direction(const Numbers& m) const {
    const double of_a = trace(used_a) / kColumns, of_g = trace(used_g) / kOut, pi = std::sqrt(of_a / of_g);
    Numbers dense(m.size() * m.size());
    for (std::size_t i = 0; i < m.size(); ++i)
      for (std::size_t j = 0; j < m.size(); ++j) {
        const bool row = i / kColumns == j / kColumns, column = i % kColumns == j % kColumns;
        double one = used_g[i / kColumns * kOut + j / kColumns], other = used_a[i % kColumns * kColumns + j % kColumns];
        if (!eigen && row) one += std::sqrt(damping) / pi;
        if (!eigen && column) other += std::sqrt(damping) * pi;
        dense[i * m.size() + j] = one * other + (eigen && row && column ? damping : 0);
      }
    return solved(dense, m);
  }
  static double trace(const Numbers& m) {
    const auto n = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(m.size()))));
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += m[i * n + i];
    return sum;
  }
  // m: the scaled gradient, before clipping; scale: of what the layer saw.
  void step(int t, Numbers m, const std::vector<Numbers>& x, const std::vector<Numbers>& d, double scale, double clip, double lr,
            double rate, double decay) {
    const auto rows = static_cast<double>(x.size()), n = 1 + static_cast<double>(t - 1) / factor_every;
    const double k = std::min(1 - 1 / std::max(2.0, n), keep);
    if (due(t, factor_every)) average(a, x, 1 / rows, k), average(g, d, rows * scale * scale, k);
    if (due(t, inverse_every)) used_a = a, used_g = g;
    Numbers v = direction(m);
    double product = 0;
    for (std::size_t i = 0; i < v.size(); ++i) product += v[i] * m[i] * clip * clip;
    const double nu = std::min(1.0, std::sqrt(kl_clip / (lr * lr * std::abs(product))));
    for (std::size_t i = 0; i < w.size(); ++i) {
      b[i] = momentum * b[i] + nu * clip * v[i] + decay * w[i];
      w[i] -= rate * b[i];
    }
  }
};

template <class T>
double worst_against(bool eigen, double kl_clip) {
  const std::string by = eigen ? "eigen" : "inverse";
  const auto rule =
      make("kfac(decay=0.8, damping=0.02, factor_every=2, inverse_every=4, by=" + by + ", kl_clip=" + std::to_string(kl_clip) + ")");
  std::vector<Layer<T>> layers;
  layers.emplace_back(*rule);
  Layer<T>& layer = layers[0];
  std::mt19937 random(3);
  fill_normal(layer.w.w, random);
  Reference reference{
      .eigen = eigen, .damping = 0.02, .kl_clip = kl_clip, .factor_every = 2, .inverse_every = 4, .w = layer.matrix(layer.w.w, layer.b.w)};
  RanksTogether together(1);
  TestSide side(together, 0, true);
  double worst = 0;
  for (int t = 1; t <= 14; ++t) {
    layer.draw(random);
    fill_normal(layer.w.g, random), fill_normal(layer.b.g, random);
    Numbers m = layer.matrix(layer.w.g, layer.b.g);
    for (double& g : m) g *= 0.25;
    std::vector<Numbers> x, d;
    for (std::size_t r = 0; r < kRows; ++r) {
      x.emplace_back(layer.x.begin() + static_cast<std::ptrdiff_t>(r * kIn), layer.x.begin() + static_cast<std::ptrdiff_t>((r + 1) * kIn));
      x.back().push_back(1);
      d.emplace_back(layer.d.begin() + static_cast<std::ptrdiff_t>(r * kOut),
                     layer.d.begin() + static_cast<std::ptrdiff_t>((r + 1) * kOut));
    }
    std::vector<std::vector<void*>> states;
    const StepInfo info{.step = t, .lr = 0.05, .grad_scale = 0.25};
    if (!rule->watches(t)) layer.tapped.seen.clear();
    offer(side, layers, info, states);
    rule->prepare(side);
    StepInfo clipped = info;
    clipped.grad_scale *= 0.5;
    layer.update(*rule, clipped, {.lr_scale = 0.6, .weight_decay = 0.1});
    reference.step(t, m, x, d, 0.25, 0.5, 0.05, 0.03, 0.1);
    const Numbers now = layer.matrix(layer.w.w, layer.b.w);
    for (std::size_t i = 0; i < now.size(); ++i) worst = std::max(worst, std::abs(now[i] - reference.w[i]));
  }
  return worst;
}

TEST(Kfac, FollowsItsFormulaWithOlderStatisticsAndInverses) {
  for (const bool eigen : {true, false})
    for (const double kl_clip : {1e-4, 1e4}) {
      EXPECT_LT(worst_against<double>(eigen, kl_clip), 1e-11) << eigen << " " << kl_clip;
      EXPECT_LT(worst_against<float>(eigen, kl_clip), 5e-4) << eigen << " " << kl_clip;
    }
}

// Steps 1 .. 12 of three layers on a rank; again_at: from this step on by a rule that knows nothing but the state.
Numbers trained(TestSide& side, const std::string& spec, int shards, int again_at = 0, int called_off = 0) {
  auto rule = make(spec);
  std::vector<Layer<float>> layers;
  for (const char* name : {"one", "two", "three"}) layers.emplace_back(*rule, name);
  std::mt19937 gradients(5), samples(7 + static_cast<unsigned>(side.rank()));
  for (int t = 1; t <= 12; ++t) {
    if (t == again_at) rule = make(spec);
    for (auto& layer : layers) {
      fill_normal(layer.w.g, gradients), fill_normal(layer.b.g, gradients);
      layer.draw(samples);
      if (side.rank() == 1 && t == 4) layer.tapped.seen.clear();  // without samples
    }
    std::vector<std::vector<void*>> states;
    offer(side, layers, {.step = t, .lr = 0.05}, states, shards);
    rule->prepare(side);
    if (t == called_off) continue;
    for (auto& layer : layers)
      for (auto* field : {&layer.w, &layer.b})
        for (const Slice& own : side.own)
          if (own.name == field->info.name) field->update(*rule, {.step = t, .lr = 0.05});
  }
  Numbers all;
  for (auto& layer : layers) {  // those of other ranks are as they began, at zero
    all.insert(all.end(), layer.w.w.begin(), layer.w.w.end());
    all.insert(all.end(), layer.b.w.begin(), layer.b.w.end());
  }
  return all;
}

// Together: what the ranks that update a tensor made of it.
Numbers on_ranks(int ranks, bool replicated, const std::string& spec, int again_at = 0, int* jobs = nullptr) {
  RanksTogether together(ranks);
  std::vector<Numbers> ended(static_cast<std::size_t>(ranks));
  std::vector<int> jobs_run(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      TestSide side(together, rank, replicated);
      ended[static_cast<std::size_t>(rank)] = trained(side, spec, replicated ? 1 : ranks, again_at);
      jobs_run[static_cast<std::size_t>(rank)] = side.jobs_run;
    });
  threads.clear();
  Numbers all = ended[0];
  for (int rank = 1; rank < ranks; ++rank)
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double other = ended[static_cast<std::size_t>(rank)][i];
      EXPECT_TRUE(!replicated || all[i] == other);
      if (!replicated) all[i] += other;
    }
  for (const int n : jobs_run)
    if (jobs != nullptr) *jobs += n;
  return all;
}

TEST(Kfac, TensorsThatRanksShareOutGetTheBitsOfThoseThatAllUpdate) {
  for (const char* spec : {"kfac(factor_every=1, inverse_every=3, by=eigen)", "kfac(factor_every=2, inverse_every=5)"})
    for (const int ranks : {1, 2, 3, 4}) {
      int jobs = 0;
      const Numbers all = on_ranks(ranks, true, spec, 0, &jobs);
      EXPECT_EQ(on_ranks(ranks, false, spec), all) << spec << ranks;
      EXPECT_EQ(on_ranks(ranks, false, spec, 6), all) << "again, " << spec << ranks;
      constexpr int kInversions = 5;  // in steps 1 2 4 7 10, and 1 2 4 6 11
      EXPECT_EQ(jobs, ranks == 1 ? 0 : kInversions * 3 * 2) << "each by one rank";
    }
}

TEST(Kfac, AStepThatIsCalledOffLeavesNothingBehind) {
  RanksTogether together(1);
  TestSide side(together, 0, true), other(together, 0, true);
  const std::string spec = "kfac(factor_every=3, inverse_every=3)";
  EXPECT_EQ(trained(side, spec, 1, 0, 7), trained(other, spec, 1, 8, 7));
}

TEST(Kfac, AnInversionThatFailsLeavesTheOneBeforeInItsPlace) {
  for (const char* by : {"eigen", "inverse"}) {
    const auto rule = make(std::string("kfac(factor_every=100, inverse_every=1, by=") + by + ")");
    RanksTogether together(1);
    TestSide side(together, 0, true);
    std::vector<Layer<double>> layers;
    layers.emplace_back(*rule);
    std::mt19937 random(2);
    std::vector<std::vector<void*>> states;
    const auto step = [&](int t) {
      layers[0].draw(random);
      fill_normal(layers[0].w.g, random), fill_normal(layers[0].b.g, random);
      offer(side, layers, {.step = t, .lr = 0.05}, states);
      rule->prepare(side);
      layers[0].update(*rule, {.step = t, .lr = 0.05});
    };
    step(1);
    step(2);
    const Numbers inverses = layers[0].w.s[1];
    layers[0].w.s[0][1] = layers[0].w.s[0][kIn + 1] = by == std::string("eigen") ? INFINITY : 1e6;  // A is not positive definite
    step(3);
    EXPECT_EQ(layers[0].w.s[1], inverses) << by;
    EXPECT_THAT(layers[0].w.w, testing::Each(testing::Truly([](double x) { return std::isfinite(x); })));
  }
}

TEST(Kfac, InvertsPositiveMatricesOnly) {
  constexpr std::size_t n = 37;
  std::mt19937 random(4);
  Numbers x(n * n), a(n * n), product(n * n);
  fill_normal(x, random);
  Algebra{}.multiply_symmetric<double>(1, {x.data(), n, n}, Matrix<double>(x.data(), n, n).transposed(), 0, {a.data(), n, n});
  Numbers inverse = a;
  ASSERT_TRUE(kfac::invert_positive(inverse, n));
  Algebra{}.multiply<double>(1, {a.data(), n, n}, {inverse.data(), n, n}, 0, {product.data(), n, n});
  for (std::size_t i = 0; i < n * n; ++i) EXPECT_NEAR(product[i], i / n == i % n ? 1 : 0, 1e-8);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(inverse[i * n + j], inverse[j * n + i]);
  a[n + 1] = -1;
  EXPECT_FALSE(kfac::invert_positive(a, n));
}

TEST(Kfac, LargeAndNamedTensorsAreUpdatedByTheirGradient) {
  const auto rule = make("kfac(max_dim=100, skip=\"embed.*\")");
  const auto states = [&](const char* name, cohort::Shape shape) { return rule->state({name, std::move(shape)}).size(); };
  EXPECT_EQ(states("fc.weight", {100, 99}), 3u);
  EXPECT_EQ(states("fc.weight", {101, 9}), 1u);
  EXPECT_EQ(states("fc.weight", {9, 100}), 1u) << "and a bias";
  EXPECT_EQ(states("embed.weight", {9, 9}), 1u);
  EXPECT_EQ(states("fc.bias", {9}), 1u);
  EXPECT_TRUE(make("kfac(factor_every=10)")->watches(11));
  EXPECT_TRUE(make("kfac(factor_every=10)")->watches(4)) << "before that at powers of two";
  EXPECT_FALSE(make("kfac(factor_every=10)")->watches(12));
}

// Cross entropy of a linear model of three classes after 200 full batches; its inputs spread from 1 down to 1e-2, and all lie around 1.
double loss_of_classes(const std::string& spec) {
  constexpr std::size_t kSamples = 256;
  const auto rule = make(spec);
  Field<double> w(*rule, TensorInfo{"fc.weight", {kOut, kIn}, Dtype::f64}), b(*rule, TensorInfo{"fc.bias", {kOut}, Dtype::f64});
  std::mt19937 random(9);
  Numbers x(kSamples * kIn), truth(kOut * kIn), d(kSamples * kOut);
  std::vector<std::size_t> label(kSamples);
  fill_normal(x, random), fill_normal(truth, random);
  const auto outputs = [&](const Numbers& of, std::size_t n, const Numbers& bias) {
    Numbers y = bias;
    for (std::size_t i = 0; i < kOut; ++i)
      for (std::size_t j = 0; j < kIn; ++j) y[i] += of[i * kIn + j] * x[n * kIn + j];
    return y;
  };
  for (std::size_t n = 0; n < kSamples; ++n) {
    const Numbers y = outputs(truth, n, Numbers(kOut));
    label[n] = static_cast<std::size_t>(std::max_element(y.begin(), y.end()) - y.begin());
  }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1 + x[i] * std::pow(10, -static_cast<double>(i % kIn) * 2 / (kIn - 1));
  RanksTogether together(1);
  TestSide side(together, 0, true);
  double loss = 0;
  for (int t = 1; t <= 200; ++t) {
    loss = 0;
    std::fill(w.g.begin(), w.g.end(), 0), std::fill(b.g.begin(), b.g.end(), 0);
    for (std::size_t n = 0; n < kSamples; ++n) {
      Numbers y = outputs(w.w, n, b.w);
      double sum = 0;
      for (double& o : y) sum += o = std::exp(o);
      loss -= std::log(y[label[n]] / sum) / kSamples;
      for (std::size_t i = 0; i < kOut; ++i) {
        const double off = (y[i] / sum - (i == label[n] ? 1 : 0)) / kSamples;
        d[n * kOut + i] = off;
        b.g[i] += off;
        for (std::size_t j = 0; j < kIn; ++j) w.g[i * kIn + j] += off * x[n * kIn + j];
      }
    }
    std::vector<void*> of_w, of_b;
    side.own = {w.slice(0, w.w.size(), {}, of_w), b.slice(0, b.w.size(), {}, of_b)};
    side.seen = {{"fc.weight", "fc.bias", kIn, kOut, {{piece(std::span(x)), piece(std::span(d)), kSamples, kSamples}}}};
    side.info = {.step = t, .lr = rule->default_lr()};
    if (rule->needs().taps) rule->prepare(side);
    w.update(*rule, side.info);
    b.update(*rule, side.info);
  }
  return loss;
}

TEST(Kfac, OnInputsOfVeryDifferentSpreadItIsAheadOfMomentumAtAnyRate) {
  double best = INFINITY;
  for (const char* lr : {"0.1", "0.3", "1", "3"}) best = std::min(best, loss_of_classes(std::string("sgd(momentum=0.9, lr=") + lr + ")"));
  EXPECT_LT(loss_of_classes("kfac(lr=0.3, damping=1e-3)"), 0.75 * best);
}

}  // namespace
}  // namespace cohort::optim
