// Laws that every rule of the table keeps; a new rule is held to them by its word.
#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/isa.h"
#include "cohort/base/spec.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::HasSubstr;

std::vector<std::string> specs() {
  std::vector<std::string> all{"sgd(momentum=0.9)",
                               "sgd(momentum=0.9, nesterov=true)",
                               "adam(amsgrad=true)",
                               "adamw(amsgrad=true)",
                               "rmsprop(momentum=0.9)",
                               "rmsprop(centered=true)",
                               "rmsprop(momentum=0.9, centered=true)",
                               "lamb(adapt=all)",
                               "lars(momentum=0)",
                               "lars(form=gradient)",
                               "lars(form=tensorflow)",
                               "larc(mode=scale)",
                               "larc(nesterov=true)",
                               "nadam(decoupled=true)",
                               "radam(decoupled=true)",
                               "radam(beta2=0.5)",
                               "adafactor(eps1=1e-3, d=2)",
                               "muon(nesterov=false)"};
  for (const Rule* rule : rules()) all.emplace_back(rule->name);
  return all;
}

template <class Body>
void for_every_rule(const Body& body) {
  for (const std::string& spec : specs()) {
    SCOPED_TRACE(spec);
    const auto rule = make(spec);
    body(*rule, float{});
    body(*rule, double{});
  }
}

const Slice kGroup{.lr_scale = 0.7, .weight_decay = 0.03};
StepInfo step_info(std::int64_t step) { return {.step = step, .lr = 0.05, .grad_scale = 0.3}; }

// Three steps of noise; `cuts` are where the run is cut, ascending.
template <class T>
Field<T> trained(const Optimizer& rule, std::size_t count, const std::vector<std::size_t>& cuts = {}, bool clear = false) {
  Field<T> field(rule, count);
  std::mt19937 random(11);
  fill_normal(field.w, random);
  for (std::int64_t step = 1; step <= 3; ++step) {
    fill_normal(field.g, random);
    StepInfo info = step_info(step);
    info.clear_grad = clear;
    std::size_t from = 0;
    for (const std::size_t cut : cuts) field.update(rule, info, std::exchange(from, cut), cut, kGroup);
    field.update(rule, info, from, count, kGroup);
  }
  return field;
}

class Rules : public testing::Test {
 protected:
  ~Rules() override { use_isa(runnable_isas().back()); }
};

TEST_F(Rules, GiveTheSameBitsHoweverASliceIsCut) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    if (rule.needs().grain == Grain::tensor) return;  // whole_rules_test.cc
    const auto whole = trained<T>(rule, 1013);
    EXPECT_TRUE(whole.same_bits(trained<T>(rule, 1013, {1, 2, 5, 64, 64, 199, 1000, 1012})));
    std::vector<std::size_t> each(1012);
    for (std::size_t i = 0; i < each.size(); ++i) each[i] = i + 1;
    EXPECT_TRUE(whole.same_bits(trained<T>(rule, 1013, each)));
  });
}

TEST_F(Rules, MeasureTheSameSumsHoweverATensorIsCutAndOnEveryInstructionSet) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    Field<T> field = trained<T>(rule, 2000);
    field.measure(rule, step_info(4), kGroup);
    const auto whole = field.sums;
    EXPECT_EQ(whole.size(), rule.needs().sums());
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      for (const auto& cuts : {std::vector<std::size_t>{256}, {256, 512, 1792}, {0, 1024, 1024}}) {
        field.measure(rule, step_info(4), kGroup, cuts);
        EXPECT_EQ(field.sums, whole) << name_of(isa);
      }
    }
  });
}

TEST_F(Rules, GiveTheSameBitsOnEveryInstructionSet) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    use_isa(Isa::plain);
    const auto plain = trained<T>(rule, 777);
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      EXPECT_TRUE(plain.same_bits(trained<T>(rule, 777))) << name_of(isa);
    }
  });
}

TEST_F(Rules, TouchNothingOutsideTheSliceOfAnySize) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    if (rule.needs().grain == Grain::tensor) return;  // whole_rules_test.cc
    for (const std::size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 67}) {
      Field<T> field(rule, 80, T{5});
      std::fill(field.g.begin(), field.g.end(), T{1});
      const Field<T> before = field;
      StepInfo info = step_info(1);
      info.clear_grad = true;
      field.update(rule, info, 3, 3 + count, kGroup);
      for (std::size_t i = 0; i < 80; ++i) {
        const bool inside = i >= 3 && i < 3 + count;
        EXPECT_EQ(field.w[i] != before.w[i], inside) << i << " of " << count;
        EXPECT_EQ(field.g[i] != before.g[i], inside) << i << " of " << count;
        for (std::size_t k = 0; k < field.s.size(); ++k) EXPECT_TRUE(inside || field.s[k][i] == before.s[k][i]) << i << " of " << count;
      }
    }
  });
}

TEST_F(Rules, ClearingTheGradientChangesNothingElse) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    const auto kept = trained<T>(rule, 101), cleared = trained<T>(rule, 101, {}, true);
    EXPECT_TRUE(kept.same_bits(cleared));
    EXPECT_THAT(cleared.g, testing::Each(T{0}));
    EXPECT_THAT(kept.g, testing::Each(testing::Ne(T{0})));
  });
}

TEST_F(Rules, AScaledGradientIsReadAsIfItHadBeenScaledBefore) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    Field<T> scaled(rule, 50, T{1}), before(rule, 50, T{1});
    std::mt19937 random(5);
    fill_normal(scaled.g, random);
    std::transform(scaled.g.begin(), scaled.g.end(), before.g.begin(), [](T g) { return g * static_cast<T>(0.3); });
    scaled.update(rule, {.step = 2, .lr = 0.1, .grad_scale = 0.3});
    before.update(rule, {.step = 2, .lr = 0.1});
    EXPECT_TRUE(rule.needs().rounds > 0 || rule.needs().grain == Grain::tensor || scaled.same_bits(before));
    for (std::size_t i = 0; i < scaled.w.size(); ++i)  // the norm of what is read, or what is read of the norm: rounded elsewhere
      EXPECT_NEAR(static_cast<double>(scaled.w[i]), static_cast<double>(before.w[i]), sizeof(T) == 4 ? 1e-6 : 1e-14);
  });
}

TEST_F(Rules, ARateOfZeroMovesNoParameter) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    using T = decltype(zero);
    Field<T> field(rule, 20, T{3});
    std::fill(field.g.begin(), field.g.end(), T{-2});
    field.update(rule, {.step = 1, .lr = 0}, {.weight_decay = 0.1});
    EXPECT_THAT(field.w, testing::Each(T{3}));
  });
}

TEST(Make, SpellsEveryParameterOutAndReadsThatAgain) {
  EXPECT_EQ(make("sgd(lr=0.10, momentum=0.9)")->spec(), "sgd(lr=0.1, momentum=0.9, dampening=0, weight_decay=0, nesterov=false)");
  for (const std::string& spec : specs()) EXPECT_EQ(make(make(spec)->spec())->spec(), make(spec)->spec());
  EXPECT_NE(make("adam")->spec(), make("adam(eps=1e-7)")->spec());
}

TEST(Make, DefaultsAreTorchs) {
  EXPECT_EQ(make("sgd")->default_lr(), 1e-3);
  EXPECT_EQ(make("adam")->spec(), "adam(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, weight_decay=0, amsgrad=false)");
  EXPECT_EQ(make("adamw")->default_weight_decay(), 1e-2);
  EXPECT_EQ(make("adagrad")->spec(), "adagrad(lr=0.01, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10)");
  EXPECT_EQ(make("rmsprop")->spec(), "rmsprop(lr=0.01, alpha=0.99, eps=1e-08, weight_decay=0, momentum=0, centered=false)");
}

TEST(Make, RulesOfElementsHaveStateLikeTheirTensorUnderTheNamesThatTheySay) {
  for_every_rule([](const Optimizer& rule, auto zero) {
    if (rule.needs().grain == Grain::tensor) return;
    const TensorInfo tensor{"a.weight", {3, 4}, kReal<decltype(zero)>};
    const auto state = rule.state(tensor);
    ASSERT_EQ(state.size(), rule.state_names().size());
    for (std::size_t k = 0; k < state.size(); ++k) {
      EXPECT_EQ(state[k].name, rule.state_names()[k]);
      EXPECT_EQ(state[k].shape, tensor.shape);
      EXPECT_EQ(state[k].dtype, tensor.dtype);
      EXPECT_EQ(state[k].initial, rule.initial_state(k));
    }
  });
}

TEST(Make, NamesWhatItCannotRead) {
  EXPECT_THAT(failure_of([] { make("adm"); }).what, HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(failure_of([] { make("adam(beta3=1)"); }).what, HasSubstr("beta3"));
  EXPECT_EQ(failure_of([] { make("adam(beta1=1)"); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { make("sgd(lr=-1)"); }).kind, Kind::usage);
}

TEST(Update, RefusesBeforeItWrites) {
  const auto rule = make("adam");
  Field<float> field(*rule, 4, 1.0F);
  std::fill(field.g.begin(), field.g.end(), 1.0F);
  const Field<float> before = field;
  EXPECT_THAT(failure_of([&] { field.update(*rule, {.step = 0, .lr = 0.1}); }).what, HasSubstr("counted from 1"));
  EXPECT_EQ(failure_of([&] { field.update(*rule, {.step = 1, .lr = std::nan("")}); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([&] { field.update(*rule, {.step = 1, .lr = 0.1, .grad_scale = INFINITY}); }).kind, Kind::usage);
  EXPECT_THAT(failure_of([&] { field.update(*make("sgd"), {.step = 1, .lr = 0.1}); }).what, HasSubstr("has 0 states"));
  const Slice nowhere{.count = 3};
  EXPECT_THAT(failure_of([&] { make("sgd")->update(nowhere, {.step = 1, .lr = 0.1}); }).what, HasSubstr("null"));
  const Slice half{.dtype = Dtype::bf16};
  EXPECT_THAT(failure_of([&] { make("sgd")->update(half, {.step = 1, .lr = 0.1}); }).what, HasSubstr("a slice of bf16"));
  EXPECT_TRUE(field.same_bits(before));
}

TEST(Bytes, AreThoseOfOneFusedPass) {
  EXPECT_EQ(bytes_per_element(*make("sgd"), Dtype::f32, false), 12u);               // w twice, g once
  EXPECT_EQ(bytes_per_element(*make("sgd(momentum=0.9)"), Dtype::f32, true), 24u);  // w, b, g twice
  EXPECT_EQ(bytes_per_element(*make("adam"), Dtype::f64, false), 56u);
}

}  // namespace
}  // namespace cohort::optim
