#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// The formula for a whole tensor, in double.
struct Reference {
  bool clips = true, nesterov = false;
  std::vector<double> w{}, b{};

  void step(std::vector<double> g, double scale, double lr, double decay) {
    for (double& x : g) x *= scale;
    b.resize(w.size());
    const double weights = norm(w), gradient = norm(g);
    if (weights > 0 && gradient > 0) {
      const double trust = 0.02 * weights / (gradient + decay * weights + 1e-8), ratio = clips ? std::min(trust / lr, 1.0) : trust;
      for (std::size_t i = 0; i < w.size(); ++i) g[i] = ratio * (g[i] + decay * w[i]);
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      b[i] = 0.9 * b[i] + g[i];
      w[i] -= lr * (nesterov ? g[i] + 0.9 * b[i] : b[i]);
    }
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
    const double lr = 0.3 / static_cast<double>(step);  // clipped at first, then not
    reference.step({field.g.begin(), field.g.end()}, 0.25, lr * 0.5, decay);
    field.update(*rule, {.step = step, .lr = lr, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Larc, FollowsItsFormulaForFiftySteps) {
  for (const double decay : {0.0, 5e-4, 0.3})
    for (const bool clips : {true, false})
      for (const bool nesterov : {true, false}) {
        const std::string spec = std::string("larc(mode=") + (clips ? "clip" : "scale") + ", nesterov=" + (nesterov ? "true)" : "false)");
        EXPECT_LT(worst_against<float>(spec, {clips, nesterov}, decay), 1e-6) << spec << decay;
        EXPECT_LT(worst_against<double>(spec, {clips, nesterov}, decay), 1e-14) << spec << decay;
      }
}

TEST(Larc, WithAHugeTrustItIsSgdWithMomentumAndL2) {
  const auto rule = make("larc(trust=1e6)"), sgd = make("sgd(momentum=0.9)");
  Field<double> one(*rule, 50, 1.0), other(*sgd, 50, 1.0);
  std::mt19937 random(8);
  for (std::int64_t t = 1; t <= 20; ++t) {
    fill_normal(one.g, random);
    other.g = one.g;
    one.update(*rule, {.step = t, .lr = 0.05}, {.weight_decay = 0.1});
    other.update(*sgd, {.step = t, .lr = 0.05}, {.weight_decay = 0.1});
    EXPECT_EQ(one.w, other.w);
  }
}

TEST(Larc, ClippedNoStepIsLongerThanItsShareOfTheTensor) {
  const auto rule = make("larc(momentum=0, eps=0)");
  Field<double> field(*rule, 300, 2.0);
  std::mt19937 random(1);
  fill_normal(field.g, random);
  for (double& g : field.g) g *= 1e4;
  const auto before = field.w;
  field.update(*rule, {.step = 1, .lr = 1});
  std::vector<double> moved(before.size());
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = field.w[i] - before[i];
  EXPECT_NEAR(norm(moved) / norm(before), 0.02, 1e-14);
}

TEST(Larc, ATensorOrAGradientOfZeroIsNeitherScaledNorDecayed) {
  for (const char* spec : {"larc(momentum=0)", "larc(momentum=0, mode=scale)"}) {
    const auto rule = make(spec);
    Field<float> at_zero(*rule, 10), still(*rule, 10, 2.0F);
    std::fill(at_zero.g.begin(), at_zero.g.end(), 1.0F);
    at_zero.update(*rule, {.step = 1, .lr = 0.5});
    EXPECT_EQ(at_zero.w, std::vector<float>(10, -0.5F)) << spec;
    still.update(*rule, {.step = 1, .lr = 0.5}, {.weight_decay = 0.5});
    EXPECT_EQ(still.w, std::vector<float>(10, 2.0F)) << spec;
  }
}

TEST(Larc, RefusesNesterovWithoutMomentum) {
  EXPECT_EQ(failure_of([] { make("larc(momentum=0, nesterov=true)"); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::optim
