#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/optim/averaged_rule.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

// 40 steps of noise beside a rule of its own: the parameters' bits are the same, and `kept` says what the average keeps in step t.
template <class T>
double worst_average(const std::string& spec, const std::string& followed, const std::function<double(double)>& kept) {
  const auto rule = make(spec), alone = make(followed);
  Field<T> field(*rule, 203), other(*alone, 203);
  std::mt19937 random(7);
  fill_normal(field.w, random);
  other.w = field.w;
  std::vector<double> average(field.w.size());
  double worst = 0;
  for (int t = 1; t <= 40; ++t) {
    fill_normal(field.g, random);
    other.g = field.g;
    field.update(*rule, {.step = t, .lr = 0.05, .grad_scale = 0.5, .clear_grad = true}, {.weight_decay = 0.1});
    other.update(*alone, {.step = t, .lr = 0.05, .grad_scale = 0.5, .clear_grad = true}, {.weight_decay = 0.1});
    EXPECT_EQ(field.w, other.w);
    for (std::size_t i = 0; i < average.size(); ++i) {
      average[i] = kept(t) * average[i] + (1 - kept(t)) * static_cast<double>(field.w[i]);
      worst = std::max(worst, std::abs(static_cast<double>(field.s.back()[i]) - average[i]));
    }
  }
  return worst;
}

TEST(Ema, FollowsItsFormulaBesideAnyRuleAndChangesNothingOfIt) {
  const auto kept = [](double t) { return t == 1 ? 0 : std::min(0.7, t / (t + 9)); };
  for (const std::string of : {"sgd(momentum=0.9)", "adamw", "lamb", "adafactor"}) {
    EXPECT_LT(worst_average<double>("ema(of=" + of + ", decay=0.7)", of, kept), 1e-14) << of;
    EXPECT_LT(worst_average<float>("ema(of=" + of + ", decay=0.7)", of, kept), 1e-6) << of;
  }
}

TEST(Swa, IsTheMeanOfWhatItTookIn) {
  const auto kept = [](double t) { return t <= 10 ? 0 : std::fmod(t - 10, 5) == 0 ? (t - 10) / 5 / ((t - 10) / 5 + 1) : 1; };
  EXPECT_LT(worst_average<double>("swa(of=adam, start=10, every=5)", "adam", kept), 1e-14);
  EXPECT_LT(worst_average<double>("swa(of=adam)", "adam", [](double t) { return (t - 1) / t; }), 1e-14);
}

TEST(Ema, TakesRateAndDecayOfItsRuleUnlessItHasItsOwn) {
  EXPECT_EQ(make("ema(of=adam(lr=0.25, weight_decay=0.5))")->default_lr(), 0.25);
  EXPECT_EQ(make("ema(of=adam(lr=0.25, weight_decay=0.5))")->default_weight_decay(), 0.5);
  EXPECT_EQ(make("ema(of=adam(lr=0.25), lr=2)")->default_lr(), 2);
  EXPECT_EQ(make("swa(of=sgd, weight_decay=0.125)")->default_weight_decay(), 0.125);
  EXPECT_THAT(failure_of([] { make("ema(of=adm)"); }).what, testing::HasSubstr("did you mean 'adam'"));
}

TEST(Ema, KeepsTheAverageAsOneMoreStateOfEveryTensor) {
  EXPECT_THAT(make("ema(of=adam)")->state_names(), testing::ElementsAre("exp_avg", "exp_avg_sq", "average"));
  const auto state = make("ema(of=adafactor)")->state({"fc.weight", {4, 6}});
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state[2].shape, (cohort::Shape{4, 6}));
}

TEST(Ema, SaysWhetherItsAverageIsEvaluated) {
  EXPECT_TRUE(evaluates_average(make("ema")->spec()));
  EXPECT_TRUE(evaluates_average("swa(of=sgd)"));
  EXPECT_FALSE(evaluates_average("ema(of=sgd, evaluate=last)"));
  EXPECT_FALSE(evaluates_average("sgd"));
}

TEST(Ema, OfAnAverageIsRefused) {
  EXPECT_THAT(failure_of([] { make("ema(of=swa(of=sgd))"); }).what, testing::HasSubstr("it keeps an average itself"));
  EXPECT_THAT(failure_of([] { make("swa(of=ema(of=adamw))"); }).what, testing::HasSubstr("it keeps an average itself"));
}

}  // namespace
}  // namespace cohort::optim
