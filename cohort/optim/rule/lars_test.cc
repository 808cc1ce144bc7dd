#include <gmock/gmock.h>

#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// The formula for a whole tensor, in double.
struct Reference {
  double momentum, trust, eps;
  std::string form = "paper";
  std::vector<double> w{}, b{};

  void step(std::vector<double> g, double scale, double lr, double decay) {
    for (double& x : g) x *= scale;
    b.resize(w.size());
    const double weights = norm(w), gradient = norm(g);
    for (std::size_t i = 0; i < w.size(); ++i) g[i] += decay * w[i];
    const double size = form == "paper" ? gradient + decay * weights : form == "gradient" ? gradient : norm(g);
    const double ratio = weights > 0 && size > 0 ? trust * weights / (size + eps) : 1;
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] -= form == "tensorflow" ? b[i] = momentum * b[i] + lr * ratio * g[i] : lr * (b[i] = momentum * b[i] + ratio * g[i]);
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
    const double lr = 2.0 / static_cast<double>(step);
    reference.step({field.g.begin(), field.g.end()}, 0.25, lr * 0.5, decay);
    field.update(*rule, {.step = step, .lr = lr, .grad_scale = 0.25}, {.lr_scale = 0.5, .weight_decay = decay});
    for (std::size_t i = 0; i < field.w.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(field.w[i]) - reference.w[i]) / std::max(1.0, std::abs(reference.w[i])));
  }
  return worst;
}

TEST(Lars, FollowsItsFormulaForFiftySteps) {
  for (const std::string form : {"paper", "gradient", "tensorflow"})
    for (const double decay : {0.0, 5e-4, 0.3}) {
      const std::string spec = "lars(momentum=0.9, trust=0.02, eps=1e-3, form=" + form + ")";
      const Reference reference{.momentum = 0.9, .trust = 0.02, .eps = 1e-3, .form = form};
      EXPECT_LT(worst_against<float>(spec, reference, decay), 1e-6) << form << decay;
      EXPECT_LT(worst_against<double>(spec, reference, decay), 1e-14) << form << decay;
    }
}

TEST(Lars, TheStepIsAShareOfTheTensorWhateverTheScaleOfTheLoss) {
  const auto rule = make("lars(momentum=0, eps=0)");
  std::mt19937 random(4);
  Field<double> field(*rule, 700);
  fill_normal(field.w, random);
  fill_normal(field.g, random);
  Field<double> loud = field;
  for (double& g : loud.g) g *= 1e3;
  const auto before = field.w;
  field.update(*rule, {.step = 1, .lr = 3});
  loud.update(*rule, {.step = 1, .lr = 3});
  std::vector<double> moved(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    moved[i] = field.w[i] - before[i];
    EXPECT_NEAR(loud.w[i], field.w[i], 1e-6);
  }
  EXPECT_NEAR(norm(moved) / norm(before), 3 * 0.001, 1e-12);
}

TEST(Lars, FormsDifferInWeightDecayAndInTheRateAlone) {
  std::vector<std::vector<double>> ended;
  for (const char* form : {"paper", "gradient", "tensorflow"}) {
    const auto rule = make(std::string("lars(form=") + form + ")");
    Field<double> field(*rule, 40, 1.0);
    std::mt19937 random(6);
    for (std::int64_t t = 1; t <= 5; ++t) {
      fill_normal(field.g, random);
      field.update(*rule, {.step = t, .lr = 3});
    }
    ended.push_back(field.w);
  }
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(ended[1][i], ended[0][i]);
    EXPECT_NEAR(ended[2][i], ended[0][i], 1e-14);
  }
}

TEST(Lars, TensorflowsStepIsAShareOfTheTensorWithWeightDecayToo) {
  const auto rule = make("lars(momentum=0, eps=0, form=tensorflow)");
  Field<double> field(*rule, 700);
  std::mt19937 random(4);
  fill_normal(field.w, random);
  fill_normal(field.g, random);
  const auto before = field.w;
  field.update(*rule, {.step = 1, .lr = 3}, {.weight_decay = 0.7});
  std::vector<double> moved(before.size());
  for (std::size_t i = 0; i < before.size(); ++i) moved[i] = field.w[i] - before[i];
  EXPECT_NEAR(norm(moved) / norm(before), 3 * 0.001, 1e-12);
}

TEST(Lars, ATensorOrAGradientOfZeroIsPlainMomentum) {
  const auto rule = make("lars(momentum=0)");
  Field<float> at_zero(*rule, 10), still(*rule, 10, 2.0F);
  std::fill(at_zero.g.begin(), at_zero.g.end(), 1.0F);
  at_zero.update(*rule, {.step = 1, .lr = 0.5});
  EXPECT_EQ(at_zero.w, std::vector<float>(10, -0.5F));
  still.update(*rule, {.step = 1, .lr = 0.5}, {.weight_decay = 0.5});
  EXPECT_EQ(still.w, std::vector<float>(10, 1.5F)) << "decay alone, at its full length";
}

}  // namespace
}  // namespace cohort::optim
