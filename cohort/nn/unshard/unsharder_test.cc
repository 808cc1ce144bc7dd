#include "cohort/nn/unshard/unsharder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"
#include "cohort/nn/unshard/copying_loader.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct ShardedModel {
  explicit ShardedModel(const std::string& spec) : model(make_model(spec, kTestSeed)), loader(model), unsharder(loader, loader.units) {
    model.wrap_blocks(unsharder.block_wrapper());
  }
  Model model;
  CopyingLoader loader;
  Unsharder unsharder;
};

void expect_same_gradients(const Model& one, const Model& two) {
  const auto a = one.named_parameters(), b = two.named_parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(b[i].second.grad().defined()) << b[i].first;
    EXPECT_TRUE(at::equal(a[i].second.grad(), b[i].second.grad())) << a[i].first;
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(it did not fail)";
}

constexpr const char* kMlp = "mlp(in=12, hidden=9x8x7, out=5)";
constexpr const char* kGpt = "gpt(vocab=31, context=6, d=8, heads=2, layers=3)";  // the output layer is tied to the embedding

TEST(Unsharder, GradientsAreThoseOfThePlainRunAndNothingStaysResident) {
  for (const std::string spec : {kMlp, "cnn", kGpt, "gpt(vocab=31, context=6, d=8, heads=2, layers=3, tied=false)", "lstm(hidden=8)"}) {
    const Model plain = make_model(spec, kTestSeed);
    const ShardedModel sharded(spec);
    for (int step = 0; step < 2; ++step) {  // twice: the second adds to gradients that are there
      const at::Tensor x = plain.example(2, static_cast<std::uint64_t>(step));
      const Loss one = loss_on(plain, x), two = loss_on(sharded.model, x);
      EXPECT_TRUE(at::equal(one.value, two.value)) << spec;
      EXPECT_EQ(sharded.unsharder.resident(), 0U) << spec << ", after forward";
      one.value.backward();
      two.value.backward();
      EXPECT_EQ(sharded.unsharder.resident(), 0U) << spec << ", after backward";
    }
    expect_same_gradients(plain, sharded.model);
  }
}

TEST(Unsharder, AtMostTheRunningBlockIsResident) {
  const ShardedModel deep("mlp(in=12, hidden=9x8x7x6x5x4, out=5)");
  loss_on(deep.model, deep.model.example(3)).value.backward();
  EXPECT_EQ(deep.unsharder.most_resident(), 1U);
  EXPECT_EQ(deep.loader.loads, 2 * 7);

  const ShardedModel gpt(kGpt);  // units: the tied weight, positions, 3 blocks, the last norm
  loss_on(gpt.model, gpt.model.example(2)).value.backward();
  EXPECT_EQ(gpt.loader.units.size(), 6U);
  EXPECT_EQ(gpt.unsharder.most_resident(), 2U) << "a block of two units";
  EXPECT_EQ(gpt.loader.loads, 2 * 7) << "the tied weight for each of its two blocks";
}

TEST(Unsharder, EvaluationLoadsAndUnloads) {
  const ShardedModel sharded(kGpt);
  const c10::AutoGradMode no_grad(false);
  const at::Tensor x = sharded.model.example(2);
  EXPECT_TRUE(at::equal(sharded.model.forward(x), make_model(kGpt, kTestSeed).forward(x)));
  EXPECT_EQ(sharded.unsharder.resident(), 0U);
  EXPECT_EQ(sharded.loader.loads, 7);
}

TEST(Unsharder, ReadingAShardedParameterThrowsAndNamesIt) {
  ShardedModel sharded(kMlp);
  const auto parameters = sharded.model.named_parameters();
  const at::Tensor weight = parameters[0].second;
  if (!Units::reads_can_throw()) {
    EXPECT_EXIT(weight.sum(), ::testing::KilledBySignal(SIGSEGV), "");
    return;
  }
  const std::string error = error_of([&] { weight.sum(); });
  EXPECT_THAT(error, HasSubstr(parameters[0].first));
  EXPECT_THAT(error, HasSubstr("Unsharder::hold()"));
  EXPECT_THAT(error_of([&] { sharded.model.describe(); }), HasSubstr("is read while it is sharded")) << "it runs without the wrapper";
  {
    const auto hold = sharded.unsharder.hold(weight);
    EXPECT_TRUE(at::equal(weight, make_model(kMlp, kTestSeed).named_parameters()[0].second));
    EXPECT_EQ(sharded.unsharder.resident(), 1U);
  }
  const auto all = sharded.unsharder.hold();
  EXPECT_EQ(sharded.unsharder.resident(), 4U);
  loss_on(sharded.model, sharded.model.example(1)).value.backward();
  EXPECT_EQ(sharded.unsharder.resident(), 4U) << "what is held stays";
}

TEST(Unsharder, TheNextBlockIsPrefetchedFromTheSecondPassOn) {
  ShardedModel sharded("mlp(in=4, hidden=3, out=2)");
  for (int pass = 0; pass < 2; ++pass) {
    sharded.loader.calls.clear();
    loss_on(sharded.model, sharded.model.example(2)).value.backward();
    if (pass > 0) break;
    EXPECT_THAT(sharded.loader.calls, ElementsAre("load fc1.weight", "load head.weight", "load head.weight", "load fc1.weight"));
  }
  EXPECT_THAT(sharded.loader.calls, ElementsAre("load fc1.weight", "prefetch head.weight", "load head.weight", "load head.weight",
                                                "prefetch fc1.weight", "load fc1.weight"));
}

TEST(Unsharder, ABlockMayBeUsedTwiceAndHaveManyTensors) {
  Model model = make_model("mlp(in=4, hidden=4, out=4)", kTestSeed);
  const auto twice = [](const Model& m, const at::Tensor& x, Unsharder* unsharder) {
    const Block& block = m.block("fc1");
    const auto sum = [&](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{block.forward(in[0]) + in[1], in[1]}; };
    const auto run = [&](const std::vector<at::Tensor>& in) {
      return unsharder ? unsharder->run("fc1", {block.modules[0].get()}, in, sum) : sum(in);
    };
    const auto first = run({x, x});
    return run({first[0], first[1]})[0].square().sum();
  };
  const at::Tensor x = model.example(3);
  twice(model, x, nullptr).backward();
  ShardedModel sharded("mlp(in=4, hidden=4, out=4)");
  twice(sharded.model, x, &sharded.unsharder).backward();
  EXPECT_EQ(sharded.unsharder.resident(), 0U);
  const auto a = model.named_parameters(), b = sharded.model.named_parameters();
  EXPECT_TRUE(at::equal(a[0].second.grad(), b[0].second.grad()));
  EXPECT_THAT(failure_of([&] { sharded.unsharder.run("fc1", {&sharded.model.root()}, {x}, [](const auto& in) { return in; }); }).what,
              HasSubstr("two blocks are called 'fc1'"));
}

TEST(Unsharder, TheStepAfterAFailureWorks) {
  ShardedModel sharded(kGpt);
  const Model plain = make_model(kGpt, kTestSeed);
  const at::Tensor x = plain.example(2);
  bool fail = true;
  sharded.model.wrap_blocks(sharded.unsharder.block_wrapper([&](const Block& block, const at::Tensor& in) {
    if (fail && block.name == "h.1") throw_failure(Kind::system, "the disk is full");
    return block.forward(in);
  }));
  EXPECT_THAT(failure_of([&] { sharded.model.forward(x); }).what, HasSubstr("disk"));
  EXPECT_EQ(sharded.unsharder.resident(), 0U) << "forward leaves nothing behind";
  fail = false;
  const Loss doomed = loss_on(sharded.model, x);
  sharded.loader.fail_after = 3;
  EXPECT_THAT(failure_of([&] { doomed.value.backward(); }).what, HasSubstr("no such unit today"));
  sharded.model.zero_grad();
  loss_on(sharded.model, x).value.backward();
  loss_on(plain, x).value.backward();
  EXPECT_EQ(sharded.unsharder.resident(), 0U);
  expect_same_gradients(plain, sharded.model);
}

TEST(Unsharder, GoesBackTwiceThroughOneGraphAndPartly) {
  ShardedModel sharded(kMlp);
  const at::Tensor loss = loss_on(sharded.model, sharded.model.example(3)).value;
  loss.backward({}, true);
  const auto first = sharded.model.named_parameters()[2].second;
  const auto partly = torch::autograd::grad({loss}, {first});
  EXPECT_EQ(sharded.unsharder.resident(), 0U) << "Enter.backward of the block was not asked for";
  EXPECT_TRUE(at::equal(partly[0], first.grad()));
}

TEST(Unsharder, RefusesABlockThatChangesItsInputAndAGraphThatOutlivesIt) {
  ShardedModel sharded(kMlp);
  const at::Tensor x = sharded.model.example(2);
  EXPECT_THAT(
      failure_of([&] { sharded.unsharder.run("in place", sharded.model.root(), x, [](const at::Tensor& in) { return in.mul_(2); }); }).what,
      HasSubstr("block 'in place' changes its input in place"));
  at::Tensor loss;
  {
    CopyingLoader loader(make_model(kMlp, kTestSeed));
    const Model model = make_model(kMlp, kTestSeed);
    CopyingLoader other(model);
    Unsharder gone(other, other.units);
    loss = gone.run("all", model.root(), x, [&](const at::Tensor& in) { return model.forward(in); }).sum();
  }
  EXPECT_THAT(failure_of([&] { loss.backward(); }).what, HasSubstr("block 'all' after the engine"));
}

TEST(Unsharder, RefusesAParameterInTwoUnits) {
  const Model model = make_model(kMlp, kTestSeed);
  CopyingLoader loader(model);
  auto units = loader.units;
  units.push_back(units.front());
  EXPECT_THAT(failure_of([&] { const Unsharder unsharder(loader, units); }).what, HasSubstr("is in two units"));
  EXPECT_NO_THROW(model.forward(model.example(1))) << "and nothing was changed";
}

TEST(Unsharder, TiedWeightsAreAUnitOfTheirOwn) {
  const Model model = make_model(kGpt, kTestSeed);
  const auto all = model.named_parameters();
  for (const auto& unit : assign_units(model, all))
    for (const std::size_t i : unit) EXPECT_EQ(all[i].first == "wte.weight", unit.size() == 1 && i == 0) << all[i].first;
}

}  // namespace
}  // namespace cohort::nn
