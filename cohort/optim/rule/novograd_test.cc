#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// The formula for a whole tensor, in double.
struct Reference {
  double b1, b2, fresh;
  std::vector<double> w{}, m{};
  double v = 0;

  void step(std::vector<double> g, double scale, bool first, double lr, double decay) {
    for (double& x : g) x *= scale;
    m.resize(w.size());
    const double squared = norm(g) * norm(g);
    v = first ? squared : b2 * v + (1 - b2) * squared;
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = b1 * m[i] + fresh * (g[i] / (std::sqrt(v) + 1e-8) + decay * w[i]);
      w[i] -= lr * m[i];
    }
  }
};

template <class T>
double worst_against(const std::string& spec, Reference reference, double decay) {
  const auto rule = make(spec);
  Field<T> field(*rule, TensorInfo{"m", {29, 41}, kReal<T>});
  std::mt19937 random(3);
  fill_normal(field.w, random);
  reference.w.assign(field.w.begin(), field.w.end());
  double worst = 0;
  for (std::int64_t step = 1; step <= 50; ++step) {
    fill_normal(field.g, random);
    reference.step({field.g.begin(), field.g.end()}, 0.25, step == 1, 0.01, decay);
    field.update(*rule, {.step = step, .lr = 0.02, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Novograd, FollowsItsFormulaForFiftySteps) {
  for (const double decay : {0.0, 0.01}) {
    EXPECT_LT(worst_against<float>("novograd", {0.95, 0.98, 1}, decay), 2e-6) << decay;
    EXPECT_LT(worst_against<double>("novograd", {0.95, 0.98, 1}, decay), 1e-13) << decay;
    EXPECT_LT(worst_against<float>("novograd(beta1=0.9, beta2=0.5, grad_averaging=true)", {0.9, 0.5, 0.1}, decay), 1e-6) << decay;
    EXPECT_LT(worst_against<double>("novograd(beta1=0.9, beta2=0.5, grad_averaging=true)", {0.9, 0.5, 0.1}, decay), 1e-13) << decay;
  }
}

TEST(Novograd, TheFirstUpdateHasTheNormOfTheRateWhateverTheGradient) {
  for (const double size : {1e-5, 1.0, 1e9}) {
    const auto rule = make("novograd");
    Field<double> field(*rule, TensorInfo{"m", {40, 30}, Dtype::f64});
    std::mt19937 random(2);
    fill_normal(field.g, random);
    for (double& g : field.g) g *= size;
    field.update(*rule, {.step = 1, .lr = 0.25});
    EXPECT_NEAR(norm(field.w), 0.25, 1e-4) << size;
  }
}

TEST(Novograd, KeepsOneSecondMomentForATensor) {
  const auto state = make("novograd")->state({"m", {1000, 1000}});
  ASSERT_EQ(state.size(), 2u);
  EXPECT_THAT(state[1].shape, testing::ElementsAre(1));
  EXPECT_NEAR(state_per_element(*make("novograd"), {1000, 1000}), 1, 1e-5) << "half of adam's";
}

TEST(Novograd, AGradientOfZeroLeavesTheTensorAlone) {
  const auto rule = make("novograd");
  Field<float> field(*rule, TensorInfo{"m", {3, 5}}, 2);
  field.update(*rule, {.step = 1, .lr = 1});
  EXPECT_THAT(field.w, testing::Each(2));
}

}  // namespace
}  // namespace cohort::optim
