#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// The formula for a whole tensor, in double.
struct Reference {
  bool adapts;
  std::vector<double> w{}, m{}, v{};

  void step(const std::vector<double>& g, double scale, double t, double lr, double decay) {
    m.resize(w.size()), v.resize(w.size());
    std::vector<double> u(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * scale * g[i];
      v[i] = 0.999 * v[i] + 0.001 * scale * g[i] * scale * g[i];
      u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-6) + decay * w[i];
    }
    const double weights = norm(w), length = norm(u), ratio = adapts && weights > 0 && length > 0 ? weights / length : 1;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * ratio * u[i];
  }
};

template <class T>
double worst_against(const std::string& spec, Reference reference, double decay) {
  const auto rule = make(spec);
  Field<T> field(*rule, 1013);
  std::mt19937 random(3);
  fill_normal(field.w, random);
  reference.w.assign(field.w.begin(), field.w.end());
  double worst = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    fill_normal(field.g, random);
    const double lr = 0.02 / static_cast<double>(step);
    reference.step({field.g.begin(), field.g.end()}, 0.25, static_cast<double>(step), lr * 0.5, decay);
    field.update(*rule, {.step = step, .lr = lr, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Lamb, FollowsItsFormulaForFiftySteps) {
  for (const double decay : {0.0, 0.01, 0.3})
    for (const std::string spec : {"lamb", "lamb(adapt=all)"}) {
      const bool adapts = decay > 0 || spec != "lamb";
      EXPECT_LT(worst_against<float>(spec, {adapts}, decay), 1e-6) << spec << decay;
      EXPECT_LT(worst_against<double>(spec, {adapts}, decay), 1e-13) << spec << decay;
    }
}

TEST(Lamb, TheFirstStepOfAnAdaptedTensorIsItsRateLong) {
  const auto rule = make("lamb");
  std::mt19937 random(4);
  Field<double> field(*rule, 700);
  fill_normal(field.w, random);
  fill_normal(field.g, random);
  for (double& g : field.g) g *= 1e-2;
  const auto before = field.w;
  field.update(*rule, {.step = 1, .lr = 0.003}, {.weight_decay = 0.01});
  std::vector<double> moved(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) moved[i] = field.w[i] - before[i];
  EXPECT_NEAR(norm(moved) / norm(before), 0.003, 1e-15);
}

TEST(Lamb, ALayerThatStartsAtZeroMoves) {
  const auto rule = make("lamb(adapt=all)");
  Field<float> field(*rule, 10);
  std::fill(field.g.begin(), field.g.end(), 1.0F);
  field.update(*rule, {.step = 1, .lr = 0.5});
  for (const float w : field.w) EXPECT_NEAR(w, -0.5F, 1e-5);
}

TEST(Lamb, MeasuringMovesNothing) {
  const auto rule = make("lamb");
  Field<float> field(*rule, 600, 1.0F);
  std::mt19937 random(5);
  fill_normal(field.g, random);
  const Field<float> before = field;
  field.measure(*rule, {.step = 1, .lr = 0.1, .clear_grad = true}, {.weight_decay = 0.1});
  EXPECT_TRUE(field.same_bits(before));
  EXPECT_EQ(field.g, before.g);
}

TEST(Lamb, RefusesAnUpdateWithoutItsSumsAndARoundThatItDoesNotHave) {
  const auto rule = make("lamb");
  Field<float> field(*rule, 4, 1.0F);
  std::vector<void*> states;
  const Slice slice = field.slice(0, 4, {}, states);
  EXPECT_THAT(failure_of([&] { rule->update(slice, {.step = 1, .lr = 0.1}); }).what,
              testing::HasSubstr("needs 2 sums of the whole tensor"));
  std::vector<ExactSum> sums(1);
  EXPECT_THAT(failure_of([&] { rule->measure(2, slice, {.step = 1, .lr = 0.1}, sums); }).what, testing::HasSubstr("in each of 2 rounds"));
}

}  // namespace
}  // namespace cohort::optim
