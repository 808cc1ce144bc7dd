// Laws of rules that update whole tensors (Grain::tensor), and what all rules may use while a step is prepared.
#include <gmock/gmock.h>

#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/base/isa.h"
#include "cohort/optim/rule.h"
#include "cohort/optim/side.h"
#include "cohort/optim/testing.h"

namespace cohort::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<cohort::Shape>& shapes() {
  static const std::vector<cohort::Shape> all{{}, {1}, {37}, {1, 1}, {5, 9}, {33, 7}, {1, 40}, {40, 1}, {3, 2, 5, 5}, {70, 300}};
  return all;
}

std::vector<std::string> specs() {
  std::vector<std::string> all{"sm3(momentum=0)", "novograd(grad_averaging=true)", "shampoo(every=1, delay=0, block=32)",
                               "shampoo(every=2, delay=1, block=16, root=newton, graft=adagrad, nesterov=true)",
                               "shampoo(every=1, delay=1, graft=sgd, beta1=0)"};
  for (const Rule* row : rules())
    if (make(row->name)->needs().grain == Grain::tensor) all.emplace_back(row->name);
  return all;
}

template <class Body>
void for_every_rule_and_shape(const Body& body) {
  for (const std::string& spec : specs()) {
    const auto rule = make(spec);
    for (const cohort::Shape& shape : shapes()) {
      SCOPED_TRACE(testing::Message() << spec << " " << testing::PrintToString(shape));
      body(*rule, shape, float{});
      body(*rule, shape, double{});
    }
  }
}

const Slice kGroup{.lr_scale = 0.7, .weight_decay = 0.03};

template <class T>
Field<T> trained(const Optimizer& rule, const cohort::Shape& shape, StepInfo info = {}) {
  Field<T> field(rule, TensorInfo{"m", shape, kReal<T>});
  std::mt19937 random(11);
  fill_normal(field.w, random);
  for (std::int64_t step = 1; step <= 3; ++step) {
    fill_normal(field.g, random);
    info.step = step;
    info.lr = 0.05;
    if (info.grad_scale == 1) info.grad_scale = 0.3;
    field.update(rule, info, kGroup);
  }
  return field;
}

class Threaded : public Algebra {
 public:
  void run(std::size_t jobs, const std::function<void(std::size_t)>& job) const override {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t)
      threads.emplace_back([=, &job] {
        for (std::size_t i = t; i < jobs; i += 3) job(i);
      });
  }
};

class WholeRules : public testing::Test {
 protected:
  ~WholeRules() override { use_isa(runnable_isas().back()); }
};

TEST_F(WholeRules, GiveTheSameBitsOnEveryInstructionSetAndAnyNumberOfThreads) {
  for_every_rule_and_shape([](const Optimizer& rule, const cohort::Shape& shape, auto zero) {
    using T = decltype(zero);
    use_isa(Isa::plain);
    const auto plain = trained<T>(rule, shape);
    const Threaded threaded;
    EXPECT_TRUE(plain.same_bits(trained<T>(rule, shape, {.algebra = &threaded})));
    for (const Isa isa : runnable_isas()) {
      use_isa(isa);
      EXPECT_TRUE(plain.same_bits(trained<T>(rule, shape))) << name_of(isa);
    }
  });
}

TEST_F(WholeRules, LearnAndClearTheGradientWithoutChangingAnythingElse) {
  for_every_rule_and_shape([](const Optimizer& rule, const cohort::Shape& shape, auto zero) {
    using T = decltype(zero);
    const auto kept = trained<T>(rule, shape), cleared = trained<T>(rule, shape, {.clear_grad = true});
    EXPECT_TRUE(kept.same_bits(cleared));
    EXPECT_THAT(cleared.g, testing::Each(T{0}));
    EXPECT_THAT(kept.g, testing::Each(testing::Ne(T{0})));
    EXPECT_THAT(kept.w, testing::Each(testing::Truly([](T x) { return std::isfinite(x); })));
  });
}

TEST_F(WholeRules, ReadAScaledGradientAsIfItHadBeenScaledBefore) {
  for_every_rule_and_shape([](const Optimizer& rule, const cohort::Shape& shape, auto zero) {
    using T = decltype(zero);
    Field<T> scaled(rule, TensorInfo{"m", shape, kReal<T>}, T{1}), before = scaled;
    std::mt19937 random(5);
    fill_normal(scaled.g, random);
    std::transform(scaled.g.begin(), scaled.g.end(), before.g.begin(), [](T g) { return g * T{0.25}; });
    scaled.update(rule, {.step = 2, .lr = 0.1, .grad_scale = 0.25});
    before.update(rule, {.step = 2, .lr = 0.1});
    EXPECT_TRUE(scaled.same_bits(before)) << "a power of two rounds nothing";
  });
}

TEST_F(WholeRules, TouchNothingOutsideTheTensorAndItsState) {
  for_every_rule_and_shape([](const Optimizer& rule, const cohort::Shape& shape, auto zero) {
    using T = decltype(zero);
    constexpr std::size_t kGuard = 40;
    Field<T> field(rule, TensorInfo{"m", shape, kReal<T>});
    const auto guarded = [](std::vector<T>& run) {
      run.insert(run.begin(), kGuard, T{5});
      run.insert(run.end(), kGuard, T{5});
    };
    std::mt19937 random(2);
    fill_normal(field.g, random);
    guarded(field.w), guarded(field.g);
    for (auto& run : field.s) guarded(run);
    std::vector<void*> states;
    Slice slice = field.slice(kGuard, field.w.size() - kGuard, kGroup, states);
    slice.first = 0;
    rule.update(slice, {.step = 1, .lr = 0.1, .clear_grad = true});
    const auto expect_guards = [](const std::vector<T>& run) {
      EXPECT_THAT(std::vector<T>(run.begin(), run.begin() + kGuard), testing::Each(T{5}));
      EXPECT_THAT(std::vector<T>(run.end() - kGuard, run.end()), testing::Each(T{5}));
    };
    expect_guards(field.w), expect_guards(field.g);
    for (const auto& run : field.s) expect_guards(run);
  });
}

TEST_F(WholeRules, RefuseAPartOfATensor) {
  for (const std::string& spec : specs()) {
    const auto rule = make(spec);
    Field<float> field(*rule, TensorInfo{"fc.weight", {4, 8}});
    std::vector<void*> states;
    Slice part = field.slice(0, 31, {}, states);
    EXPECT_THAT(failure_of([&] { rule->update(part, {.step = 1}); }).what, HasSubstr("31 elements of fc.weight from 0 on")) << spec;
    part = field.slice(8, 32, {}, states);
    EXPECT_THAT(failure_of([&] { rule->update(part, {.step = 1}); }).what, HasSubstr("24 elements of fc.weight from 8 on")) << spec;
    Slice other = field.slice(0, 32, {}, states);
    other.state = {};
    EXPECT_THAT(failure_of([&] { rule->update(other, {.step = 1}); }).what, HasSubstr("the slice 0")) << spec;
  }
}

TEST(Jobs, TheLongestGoFirstEachToTheRankWithTheLeast) {
  const std::vector<Job> jobs{{.cost = 2}, {.cost = 7}, {.cost = 3}, {.cost = 4}};
  EXPECT_THAT(assign_jobs(jobs, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(assign_jobs(jobs, 1), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(assign_jobs({}, 3), ElementsAre());
  const std::vector<Job> equal(3);
  EXPECT_THAT(assign_jobs(equal, 5), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace cohort::optim
