#include "cohort/optim/rule/yellowfin.h"

#include <gmock/gmock.h>

#include "cohort/optim/exact_math.h"
#include "cohort/optim/minimise_testing.h"

namespace cohort::optim {
namespace {

TEST(YellowFin, TunesByTheRootOfItsCubic) {
  for (const double p : {1e-12, 1e-3, 0.5, 1.0, 7.0, 1e3, 1e12}) {
    const double x = yellowfin_root(p);
    EXPECT_NEAR(p * x, std::pow(1 - x, 3), 1e-12) << p;
  }
  const YellowFinTuned tuned = yellowfin_tuned(1, 100, 1e-30, 1);
  EXPECT_NEAR(tuned.momentum, 81.0 / 121, 1e-12);
  EXPECT_NEAR(tuned.rate, 4.0 / 121, 1e-12);
  const YellowFinTuned noisy = yellowfin_tuned(1, 1, 50, 1);  // p = 0.01: x is near 1
  EXPECT_NEAR(noisy.rate, std::pow(1 - yellowfin_root(0.01), 2), 1e-12);
}

// The formula in double over two tensors at once, of 5 and 3 elements; gradients shrink and then jump, so that norms are clipped.
TEST(YellowFin, FollowsItsFormulaOverAllTensorsTogether) {
  const auto rule = make("yellowfin(beta=0.9)");
  constexpr std::size_t kCount = 8;
  Numbers w(kCount), mean(kCount), b(kCount), all_h, g(kCount);
  double log_min = 0, log_max = 0, squares = 0, norms = 0, distance = 0;
  std::vector<Field<double>> parts;
  parts.emplace_back(*rule, TensorInfo{"a", {5}, Dtype::f64});
  parts.emplace_back(*rule, TensorInfo{"b", {3}, Dtype::f64});
  RanksTogether together(1);
  TestSide side(together, 0, true);
  side.all_tensors = 2;
  side.own_orders = {0, 1};
  std::mt19937 random(3);
  for (int t = 1; t <= 30; ++t) {
    fill_normal(g, random);
    for (double& x : g) x *= t == 25 ? 1000 : std::pow(0.9, t);
    std::copy_n(g.begin(), 5, parts[0].g.begin());
    std::copy_n(g.begin() + 5, 3, parts[1].g.begin());
    std::vector<void*> first, second;
    side.own = {parts[0].slice(0, 5, {}, first), parts[1].slice(0, 3, {}, second)};
    side.info = {.step = t, .lr = 0.5, .grad_scale = 2};
    rule->prepare(side);
    for (auto& part : parts) part.update(*rule, side.info);

    const double debias = 1 - std::pow(0.9, t), before = 1 - std::pow(0.9, t - 1);
    for (double& x : g) x *= 2;
    const double most = t > 1 ? std::sqrt(100 * std::exp(log_max / before)) : INFINITY, length = norm(g);
    EXPECT_EQ(length > most, t == 25);
    if (length > most)
      for (double& x : g) x *= most / length;
    const double h = norm(g) * norm(g);
    all_h.push_back(h);
    const auto window = all_h.end() - std::min<std::ptrdiff_t>(20, t);
    log_min = 0.9 * log_min + 0.1 * std::log(*std::min_element(window, all_h.end()));
    log_max = 0.9 * log_max + 0.1 * std::log(*std::max_element(window, all_h.end()));
    squares = 0.9 * squares + 0.1 * h;
    norms = 0.9 * norms + 0.1 * std::sqrt(h);
    distance = 0.9 * distance + 0.1 * norms / squares;  // both debiased by the same
    for (std::size_t i = 0; i < kCount; ++i) mean[i] = 0.9 * mean[i] + 0.1 * g[i];
    const double variance = std::max(1e-6, squares / debias - norm(mean) * norm(mean) / debias / debias);
    const auto tuned = yellowfin_tuned(std::exp(log_min / debias), std::exp(log_max / debias), variance, distance / debias);
    const double rate = std::min(tuned.rate, 100 / std::sqrt(h)) * 0.5 * (t + 1) / 200;
    for (std::size_t i = 0; i < kCount; ++i) {
      b[i] = tuned.momentum * b[i] - rate * g[i];
      w[i] += b[i];
      EXPECT_NEAR(i < 5 ? parts[0].w[i] : parts[1].w[i - 5], w[i], 1e-9 * std::max(1.0, std::abs(w[i]))) << t;
    }
  }
}

TEST(YellowFin, RanksThatShareTensorsOutTakeTheSameStepsToTheBit) {
  const auto all = minimise("yellowfin", bowl, Numbers(6), 0, 50);
  for (const int ranks : {2, 3}) EXPECT_EQ(minimise_on(ranks, false, "yellowfin", bowl, Numbers(6), 0, 50).x, all.x) << ranks;
}

TEST(YellowFin, GetsToTheBottomOfABowl) { EXPECT_LT(minimise("yellowfin(beta=0.99)", bowl, Numbers(6), 1e-6, 3000).f, 1e-6); }

TEST(YellowFin, LogarithmsAreThoseOfTheLibrary) {
  for (const double x : {1e-30, 0.1, 0.70710678, 0.9999, 1.0, 1.5, 2.0, 1e10, 1e30})
    EXPECT_NEAR(real_log(x), std::log(x), 2e-15 * std::max(1.0, std::abs(std::log(x)))) << x;
}

}  // namespace
}  // namespace cohort::optim
