#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;

// A tensor of three dimensions by the formula, in double.
struct Reference {
  std::array<std::size_t, 3> sizes;
  double momentum;
  std::vector<double> w{}, b{};
  std::array<std::vector<double>, 3> sums{};

  std::size_t index(std::size_t element, std::size_t axis) const {
    return axis == 2 ? element % sizes[2] : axis == 1 ? element / sizes[2] % sizes[1] : element / sizes[2] / sizes[1];
  }
  void step(const std::vector<double>& g, double scale, double lr, double decay) {
    b.resize(w.size());
    std::array<std::vector<double>, 3> next;
    for (std::size_t axis = 0; axis < 3; ++axis) sums[axis].resize(sizes[axis]), next[axis].resize(sizes[axis]);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = scale * g[i] + decay * w[i];
      double n = INFINITY;
      for (std::size_t axis = 0; axis < 3; ++axis) n = std::min(n, sums[axis][index(i, axis)]);
      n += d * d;
      for (std::size_t axis = 0; axis < 3; ++axis) next[axis][index(i, axis)] = std::max(next[axis][index(i, axis)], n);
      b[i] = momentum * b[i] + (1 - momentum) * d / std::sqrt(n);
      w[i] -= lr * b[i];
    }
    sums = next;
  }
};

template <class T>
double worst_against(const std::string& spec, double momentum, double decay) {
  const auto rule = make(spec);
  Field<T> field(*rule, TensorInfo{"m", {7, 4, 13}, kReal<T>});
  std::mt19937 random(3);
  fill_normal(field.w, random);
  Reference reference{{7, 4, 13}, momentum, {field.w.begin(), field.w.end()}};
  double worst = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    fill_normal(field.g, random);
    reference.step({field.g.begin(), field.g.end()}, 0.25, 0.05, decay);
    field.update(*rule, {.step = step, .lr = 0.1, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Sm3, FollowsItsFormulaForFiftySteps) {
  for (const double decay : {0.0, 0.1}) {
    EXPECT_LT(worst_against<float>("sm3", 0.9, decay), 2e-6) << decay;
    EXPECT_LT(worst_against<double>("sm3", 0.9, decay), 1e-14) << decay;
    EXPECT_LT(worst_against<double>("sm3(momentum=0)", 0, decay), 1e-14) << decay;
  }
}

TEST(Sm3, OnVectorsItIsAdagrad) {
  const auto rule = make("sm3(momentum=0)"), adagrad = make("adagrad(eps=0)");
  Field<double> one(*rule, 60, 1.0), other(*adagrad, 60, 1.0);
  std::mt19937 random(1);
  for (std::int64_t t = 1; t <= 30; ++t) {
    fill_normal(one.g, random);
    other.g = one.g;
    one.update(*rule, {.step = t, .lr = 0.1}, {.weight_decay = 0.1});
    other.update(*adagrad, {.step = t, .lr = 0.1}, {.weight_decay = 0.1});
  }
  for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(one.w[i], other.w[i], 1e-14);
}

TEST(Sm3, EverySumCoversTheSquaresOfItsElements) {
  const auto rule = make("sm3");
  Field<double> field(*rule, TensorInfo{"m", {9, 5}, Dtype::f64});
  std::vector<double> squares(45);
  std::mt19937 random(4);
  for (std::int64_t t = 1; t <= 40; ++t) {
    fill_normal(field.g, random);
    for (std::size_t i = 0; i < 45; ++i) squares[i] += field.g[i] * field.g[i];
    field.update(*rule, {.step = t, .lr = 0.1});
    for (std::size_t i = 0; i < 45; ++i) {
      EXPECT_GE(field.s[0][i / 5], squares[i] * (1 - 1e-12));
      EXPECT_GE(field.s[1][i % 5], squares[i] * (1 - 1e-12));
    }
  }
}

TEST(Sm3, KeepsANumberForEachIndexOfEachAxis) {
  const auto rule = make("sm3(momentum=0)");
  const auto filter = rule->state({"m", {8, 4, 3, 5}});
  ASSERT_EQ(filter.size(), 4u);
  EXPECT_EQ(filter[1].name, "accumulator_1");
  EXPECT_THAT(filter[1].shape, ElementsAre(1, 4, 1, 1));
  EXPECT_EQ(state_per_element(*rule, {1000, 1000}), 0.002);
  EXPECT_THAT(make("sm3")->state({"b", {9}})[1].name, "momentum_buffer");
  EXPECT_EQ(failure_of([&] { rule->state({"m", cohort::Shape(9, 1)}); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::optim
