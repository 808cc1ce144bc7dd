#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// 40 steps beside losses that `f` says; the worst |w - formula|.
template <class T>
double worst_against(const std::function<double(int)>& f) {
  const auto rule = make("eve(beta3=0.9, c=4, least_loss=-1)");
  Field<T> field(*rule, 77);
  std::mt19937 random(7);
  fill_normal(field.w, random);
  std::vector<double> w(field.w.begin(), field.w.end()), m(w.size()), v(w.size());
  double d = 1, worst = 0;
  for (int t = 1; t <= 40; ++t) {
    fill_normal(field.g, random);
    field.update(*rule, {.step = t, .lr = 0.01, .grad_scale = 0.5, .loss = f(t)}, {.weight_decay = 0.1});
    if (t > 1) d = 0.9 * d + 0.1 * std::clamp(std::abs(f(t) - f(t - 1)) / (std::min(f(t), f(t - 1)) + 1), 0.25, 4.0);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(field.g[i]) + 0.1 * w[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      w[i] -= 0.01 / d * m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - w[i]));
    }
  }
  return worst;
}

TEST(Eve, FollowsItsFormula) {
  const std::function<double(int)> falling = [](int t) { return 3.0 / t; }, jumping = [](int t) { return t % 2 == 0 ? 50.0 : 0.5; };
  for (const auto& f : {falling, jumping}) {
    EXPECT_LT(worst_against<double>(f), 1e-13);
    EXPECT_LT(worst_against<float>(f), 2e-6);
  }
}

TEST(Eve, IsAdamWhereTheLossChangesByItsOwnSizeOrIsNotKnown) {
  for (const bool known : {true, false}) {
    const auto eve = make("eve"), adam = make("adam");
    Field<double> one(*eve, 9), other(*adam, 9);
    for (int t = 1; t <= 20; ++t) {
      std::mt19937 random(static_cast<unsigned>(t));
      fill_normal(one.g, random);
      other.g = one.g;
      one.update(*eve, {.step = t, .lr = 0.1, .loss = known ? std::pow(2, t) : std::nan("")});
      other.update(*adam, {.step = t, .lr = 0.1});
    }
    for (std::size_t i = 0; i < one.w.size(); ++i) EXPECT_NEAR(one.w[i], other.w[i], 1e-12) << known;
  }
}

}  // namespace
}  // namespace cohort::optim
