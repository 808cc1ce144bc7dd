// What one step promises: whole or not at all, accumulation, clipping, parameters without gradients.
#include <cmath>
#include <limits>

#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

double squared(const Named& all) {
  double sum = 0;
  for (const auto& [name, t] : all) sum += t.to(at::kDouble).square().sum().item<double>();
  return sum;
}

TEST(Accumulation, WithoutCommunicationEqualsOneBigBatch) {
  for (const int lanes : {0, 2}) {
    TrainCase train_case{.type = at::kDouble, .rule = "adam(lr=0.01)", .steps = 4, .rows = {6, 6}};
    const auto big = train_ranks(train_case);
    train_case.micro = 3;
    train_case.options.lanes = lanes;
    train_case.options.bucket = ByteSize{1};
    const auto small = train_ranks(train_case);
    for (std::size_t r = 0; r < 2; ++r) expect_near(small[r].params, big[r].params, 1e-12);
  }
}

TEST(Accumulation, CountsAGradientOfAnyOfItsBackwards) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor a = at::ones({3}).requires_grad_(true), b = at::ones({3}).requires_grad_(true);
    Engine engine(comm, {{"a", a}, {"b", b}}, {.lanes = 0}, optim::make("sgd(lr=1)"));
    engine.begin({.step = 1, .lr = 1}, false);
    a.sum().backward();
    engine.begin({.step = 1, .lr = 1});
    b.sum().backward();
    engine.finish();
    EXPECT_EQ(a.sum().item<float>(), 0);
    EXPECT_EQ(b.sum().item<float>(), 0);
  });
}

TEST(Clipping, ByTheNormOfTheWholeGradientIsTheFormula) {
  constexpr double kLimit = 0.05;
  for (const double scale : {1.0, 0.25}) {  // clipping sees the gradient as the rule does
    TrainCase train_case{.type = at::kDouble, .rule = "", .rows = {4, 4}};
    const auto plain = train_ranks(train_case);
    const double norm = std::sqrt(squared(plain[0].grads)) * scale;
    ASSERT_GT(norm, kLimit);
    train_case.rule = "sgd(lr=1)";
    train_case.grad_scale = scale;
    train_case.options.clip_norm = kLimit;
    Named before;
    train_case.shape = [&](nn::Model& model) { before = copies(model.named_parameters()); };
    train_case.rows = {8};
    const auto clipped = train_ranks(train_case);
    EXPECT_NEAR(clipped[0].verdicts[0].clip, kLimit / (norm + 1e-6), 1e-12);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto expected = before[i].second - plain[0].grads[i].second * (scale * kLimit / (norm + 1e-6));
      EXPECT_LT((clipped[0].params[i].second - expected).abs().max().item<double>(), 1e-12);
    }
  }
}

TEST(Clipping, ByANormThatOverflowsSkipsTheStep) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}, at::kDouble).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.lanes = 0, .clip_norm = 1}, optim::make("sgd(lr=1)"));
    engine.begin({.step = 1, .lr = 1});
    (w.sum() * 1e200).backward();
    EXPECT_FALSE(engine.finish().committed);
    EXPECT_EQ(w[0].item<double>(), 1);
  });
}

TEST(Norms, BeforeAndAfterTheReductionAreTheirFormulas) {
  std::vector<double> own(3);
  TrainCase train_case{.type = at::kDouble, .rule = "", .rows = {2, 3, 4}};
  train_case.options.norms = true;
  train_case.before_finish = [&](const CallbackContext& c) {
    own[static_cast<std::size_t>(c.comm.rank().value)] = squared(copies(c.model.named_parameters(), true));
  };
  for (const auto& rank : train_ranks(train_case)) {
    EXPECT_NEAR(rank.verdicts[0].squared_before, (own[0] + own[1] + own[2]) / 3, 1e-12);
    EXPECT_NEAR(rank.verdicts[0].squared_after, squared(rank.grads), 1e-12);
  }
}

TEST(Verdict, SumsWhatTheCallersPass) {
  collective::run_ranks(3, [](collective::Communicator& comm) {
    const at::Tensor a = at::ones({1}).requires_grad_(true);
    Engine engine(comm, {{"a", a}}, {.lanes = 0}, optim::make("sgd"));
    engine.begin({.step = 1, .lr = 1});
    a.sum().backward();
    const double mine[]{1.0 + comm.rank().value, 0.5};
    EXPECT_THAT(engine.finish(mine).sums, testing::ElementsAre(6.0, 1.5));
  });
}

TEST(ABadGradient, OnOneRankSkipsTheStepEverywhereAndTrainingGoesOn) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const int lanes : {0, 2}) {
      TrainCase train_case{.rule = "adam(lr=0.01)", .steps = 3, .rows = {3, 3, 3}};
      train_case.options.lanes = lanes;
      train_case.options.bucket = ByteSize{100};
      train_case.options.clip_norm = 1;
      std::vector<Named> params(3), state(3);
      const auto look = [](const CallbackContext& c) {
        Named all;
        c.engine.visit([&](const StateItem& item) { all.emplace_back(item.key(), borrowed(item.values).clone()); });
        return all;
      };
      train_case.after_begin = [&](const CallbackContext& c) {
        if (c.step != 2) return;
        const auto me = static_cast<std::size_t>(c.comm.rank().value);
        params[me] = copies(c.model.named_parameters());
        state[me] = look(c);
        if (me == 1) c.model.named_parameters()[2].second.grad().view(-1)[3] = poison;
      };
      train_case.after_finish = [&](const CallbackContext& c) {
        if (c.step != 2) return;
        const auto me = static_cast<std::size_t>(c.comm.rank().value);
        expect_same_bits(copies(c.model.named_parameters()), params[me]);
        expect_same_bits(look(c), state[me]);
        EXPECT_EQ(largest(copies(c.model.named_parameters(), true)), 0) << "the next step starts from nothing";
      };
      for (const auto& rank : train_ranks(train_case)) {
        EXPECT_TRUE(rank.verdicts[0].committed);
        EXPECT_FALSE(rank.verdicts[1].committed);
        EXPECT_TRUE(rank.verdicts[2].committed);
      }
    }
}

TEST(AParameterWithoutGradient, IsLeftAloneWhenNoRankHasOneAndAveragedWithZerosWhenSomeHave) {
  for (const int lanes : {0, 2}) expect_left_alone_without_gradient("all_reduce(op=average)", lanes);
}

TEST(Parameters, FrozenOnesStayAndTiedOnesCountOnce) {
  TrainCase train_case{.type = at::kDouble, .steps = 3};
  Named before;
  train_case.shape = [&](nn::Model& model) {
    model.named_parameters()[0].second.set_requires_grad(false);
    if (before.empty()) before = copies(model.named_parameters());
  };
  const auto one = train_ranks(alone(train_case));
  const auto two = train_ranks(train_case);
  EXPECT_TRUE(at::equal(two[1].params[0].second, before[0].second));
  expect_near(two[1].params, one[0].params, 1e-12);
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true), frozen = at::ones({2}).requires_grad_(true);
    Engine engine(comm, {{"in", w}, {"out", w}, {"f", frozen, {.frozen = true}}}, {.lanes = 0}, optim::make("sgd(lr=1)"));
    EXPECT_EQ(engine.buckets()[0]->members().size(), 1u);
    engine.begin({.step = 1, .lr = 1});
    (2 * w.sum() + w.sum() + frozen.sum()).backward();
    engine.finish();
    EXPECT_EQ(w[0].item<float>(), -2);
    EXPECT_EQ(frozen[0].item<float>(), 1);
  });
}

TEST(Usage, InvalidUseIsRefusedWithTheReason) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({2}).requires_grad_(true);
    const auto why = [&](std::vector<Parameter> parameters, const EngineOptions& options, const char* rule) {
      return failure_of([&] { Engine(comm, std::move(parameters), options, rule ? optim::make(rule) : nullptr); }).what;
    };
    EXPECT_THAT(why({{"w", w}}, {.early_update = true, .clip_norm = 1}, "sgd"), HasSubstr("clip_norm"));
    EXPECT_THAT(why({{"w", w}}, {.early_update = true}, nullptr), HasSubstr("without an optimizer"));
    EXPECT_THAT(why({{"w", at::ones({2})}}, {}, "sgd"), HasSubstr("nothing to train"));
    EXPECT_THAT(why({{"w * 2", w * 2}}, {}, "sgd"), HasSubstr("not a leaf"));
    EXPECT_THAT(why({{"w", w}}, {.strategy = "gossip"}, "sgd"), HasSubstr("gossip"));
    EXPECT_THAT(why({{"half", at::ones({2}, at::kHalf).requires_grad_(true)}}, {}, "sgd"), HasSubstr("half"));
    Engine engine(comm, {{"w", w}}, {.lanes = 0}, optim::make("sgd"));
    EXPECT_THAT(why({{"w", w}}, {}, "sgd"), HasSubstr("another engine"));
    EXPECT_THAT(failure_of([&] { engine.finish(); }).what, HasSubstr("without begin()"));
    engine.begin({.step = 1, .lr = 1});
    w.sum().backward();
    EXPECT_THAT(failure_of([&] { engine.begin({.step = 2, .lr = 1}); }).what, HasSubstr("before finish()"));
  });
}

// Lanes update with the rate that begin() was given, some of them before a later one could reach them.
TEST(Usage, AnotherRateAfterBeginIsRefusedWhereLanesUpdateEarly) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    for (const bool early : {false, true}) {
      const at::Tensor w = at::ones({2}).requires_grad_(true);
      Engine engine(comm, {{"w", w}}, {.lanes = 1, .early_update = early}, optim::make("sgd"));
      engine.set_rate(3);  // no step is under way
      engine.begin({.step = 1, .lr = 1});
      engine.set_rate(1);  // the same
      if (early)
        EXPECT_THAT(failure_of([&] { engine.set_rate(2); }).what, HasSubstr("give it the new one"));
      else
        engine.set_rate(2);
      const float before = w[0].item<float>();
      w.sum().backward();
      engine.finish();
      EXPECT_EQ(w[0].item<float>(), before - (early ? 1.0F : 2.0F));
    }
  });
}

// With a lane it would be lost, and whether there is a lane is up to the machine.
TEST(Usage, ASecondGradientInOneStepIsRefused) {
  for (const int lanes : {0, 1})
    collective::run_ranks(1, [lanes](collective::Communicator& comm) {
      const at::Tensor w = at::ones({2}).requires_grad_(true);
      Engine engine(comm, {{"w", w}}, {.lanes = lanes}, optim::make("sgd"));
      engine.begin({.step = 1, .lr = 1});
      w.sum().backward();
      EXPECT_THAT(failure_of([&] { w.sum().backward(); }).what, HasSubstr("second gradient"));
    });
}

}  // namespace
}  // namespace cohort::engine
