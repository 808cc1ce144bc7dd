#include "cohort/nn/recompute.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include "cohort/base/failure_of.h"
#include "cohort/nn/activation_bytes.h"
#include "cohort/nn/allocation_meter.h"
#include "cohort/nn/models/testing.h"
#include "cohort/nn/unshard/copying_loader.h"

namespace cohort::nn {
namespace {

using testing::HasSubstr;

constexpr const char* kDroppingGpt = "gpt(vocab=31, context=6, d=8, heads=2, layers=3, dropout=0.3)";

void seed(std::uint64_t number) {
  at::Generator rng = at::globalContext().defaultGenerator(c10::kCPU);
  rng.set_current_seed(number);
}

at::Tensor leaf(std::vector<std::int64_t> sizes, std::uint64_t number) {
  at::Generator rng = at::detail::createCPUGenerator(number);
  return at::randn(sizes, rng, at::kFloat).requires_grad_();
}

// Two steps without clearing gradients: the second adds to what is there.
void train(const Model& model, const at::Tensor& x) {
  for (int step = 0; step < 2; ++step) {
    seed(static_cast<std::uint64_t>(step));
    loss_on(model, x).value.backward();
  }
}

void expect_same(const NamedTensors& a, const NamedTensors& b, bool gradients, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const at::Tensor one = gradients ? a[i].second.grad() : a[i].second, two = gradients ? b[i].second.grad() : b[i].second;
    ASSERT_TRUE(one.defined() && two.defined()) << what << ": " << a[i].first;
    EXPECT_TRUE(at::equal(one, two)) << what << ": " << a[i].first;
  }
}

TEST(Recompute, LossesGradientsAndStatisticsHaveTheSameBits) {
  for (const std::string spec : {kDroppingGpt, "mlp(in=12, hidden=9x8, out=5)", "asl_cnn(size=12, classes=10)", "lstm(hidden=8)"}) {
    const Model plain = make_model(spec, kTestSeed);
    Model model = make_model(spec, kTestSeed);
    model.wrap_blocks([](const Block& block, const at::Tensor& x) { return recompute(block, x); });
    const at::Tensor x = plain.example(2);
    train(plain, x);
    train(model, x);
    expect_same(plain.named_parameters(), model.named_parameters(), true, spec);
    expect_same(plain.named_buffers(), model.named_buffers(), false, spec);
    seed(5);
    const at::Tensor one = loss_on(plain, x).value;
    seed(5);
    EXPECT_TRUE(at::equal(one, loss_on(model, x).value)) << spec;
  }
}

TEST(Recompute, ComposesWithParametersThatComeAndGo) {
  for (const bool outside : {false, true}) {
    const Model plain = make_model(kDroppingGpt, kTestSeed);
    Model model = make_model(kDroppingGpt, kTestSeed);
    CopyingLoader loader(model);
    Unsharder unsharder(loader, loader.units);
    const BlockWrapper again = [](const Block& block, const at::Tensor& x) { return recompute(block, x); };
    const BlockWrapper comes = unsharder.block_wrapper();
    model.wrap_blocks(outside ? BlockWrapper([&](const Block& block, const at::Tensor& x) {
      Block whole = block;
      whole.forward = [&comes, block](const at::Tensor& in) { return comes(block, in); };
      return recompute(whole, x);
    })
                              : unsharder.block_wrapper(again));
    const at::Tensor x = plain.example(3);
    train(plain, x);
    train(model, x);
    expect_same(plain.named_parameters(), model.named_parameters(), true, outside ? "recompute(unsharder)" : "unsharder(recompute)");
    EXPECT_EQ(unsharder.resident(), 0U);
    EXPECT_EQ(loader.loads, 2 * (outside ? 21 : 14)) << "inside, recomputing loads nothing more";
  }
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& c) : count(c) {}
  void operator()(const at::Tensor&) override { ++count; }
  int& count;
};

TEST(Recompute, AGradientArrivesOnceInABackwardAlsoForTiedWeights) {
  Model model = make_model(kDroppingGpt, kTestSeed);
  model.wrap_blocks([](const Block& block, const at::Tensor& x) { return recompute(block, x); });
  const auto parameters = model.named_parameters();
  std::vector<int> counts(parameters.size());
  for (std::size_t i = 0; i < counts.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters[i].second, std::make_unique<CountingHook>(counts[i]));
  loss_on(model, model.example(2)).value.backward();
  EXPECT_THAT(counts, testing::Each(1));
}

TEST(Checkpoint, TakesAndGivesManyTensorsOfWhichSomeNeedNoGradient) {
  const auto f = [](const at::Tensor& x, const at::Tensor& mask, const at::Tensor& places) {
    return std::tuple{x.index_select(0, places).mul(mask).tanh(), mask.sum(), x.sum()};
  };
  const at::Tensor x = leaf({6, 3}, 1), y = leaf({6, 3}, 1), mask = at::ones({6, 3}).mul(0.5), places = at::randperm(6, at::kLong);
  const auto [a, b, c] = f(x, mask, places);
  const auto [d, e, g] = recompute(f, y, mask, places);
  EXPECT_TRUE(d.requires_grad() && g.requires_grad());
  EXPECT_FALSE(e.requires_grad()) << "no input of it requires a gradient";
  EXPECT_TRUE(at::equal(a, d) && at::equal(b, e) && at::equal(c, g));
  a.square().sum().backward();
  d.square().sum().backward();  // the third stays without a gradient
  EXPECT_TRUE(at::equal(x.grad(), y.grad()));
  EXPECT_EQ(recompute([](const at::Tensor& in) { return std::vector<at::Tensor>{in, in * 2}; }, y).size(), 2U);
}

TEST(Checkpoint, MayBeNested) {
  const at::Tensor x = leaf({8, 8}, 1), w = leaf({8, 8}, 2), v = leaf({8, 8}, 3);
  const auto inner = [&](const at::Tensor& in) { return at::dropout(in.mm(w), 0.5, true).tanh(); };
  const auto run = [&](bool again) {
    for (const auto& t : {x, w, v}) t.mutable_grad().reset();
    seed(3);
    const auto outer = [&](const at::Tensor& in) { return (again ? recompute(inner, in) : inner(in)).mm(v).mm(w); };
    const at::Tensor y = at::dropout(again ? recompute(outer, x) : outer(x), 0.5, true);
    y.square().sum().backward();
    return std::vector<at::Tensor>{y, x.grad(), w.grad(), v.grad(), at::randn({4})};
  };
  const auto plain = run(false), nested = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], nested[i])) << i << " (the last: random numbers go on)";
}

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(Checkpoint, RunsAgainUnderTheAutocastOfItsForward) {
  const at::Tensor x = leaf({8, 8}, 1), w = leaf({8, 8}, 2);
  const auto f = [&](const at::Tensor& in) { return in.mm(w).tanh().mm(w); };
  std::vector<at::Tensor> gradients;
  for (const bool again : {false, true}) {
    for (const auto& t : {x, w}) t.mutable_grad().reset();
    at::Tensor y;
    {
      const Autocast on;
      y = again ? recompute(f, x) : f(x);
    }
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.to(at::kFloat).square().sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    gradients.push_back(x.grad());
    gradients.push_back(w.grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[2]) && at::equal(gradients[1], gradients[3]));
}

TEST(Checkpoint, OnlyCallsTheFunctionWithoutGradMode) {
  const c10::AutoGradMode no_grad(false);
  int calls = 0;
  EXPECT_FALSE(recompute([&](const at::Tensor& in) { return ++calls, in * 2; }, leaf({2}, 1)).requires_grad());
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, GivesAPartOfTheGradientsWhereAPartIsAskedFor) {
  const at::Tensor x = leaf({4, 4}, 1), w = leaf({4, 4}, 2);
  const at::Tensor y = recompute([&](const at::Tensor& in) { return in.mm(w).tanh(); }, x).sum();
  const auto of_w = torch::autograd::grad({y}, {w}, {}, true);
  EXPECT_TRUE(at::equal(of_w[0], torch::autograd::grad({x.mm(w).tanh().sum()}, {w})[0]));
  EXPECT_FALSE(w.grad().defined());
  y.backward();
  EXPECT_TRUE(at::equal(of_w[0], w.grad()));
}

TEST(Checkpoint, SaysWhatItCannotDo) {
  const at::Tensor x = leaf({4, 4}, 1), w = leaf({4, 4}, 2), made = w * 2;
  EXPECT_THAT(failure_of([&] { recompute([&](const at::Tensor& in) { return in.mm(made); }, x); }).what,
              HasSubstr("captures a tensor with a history (made by MulBackward"));
  EXPECT_THAT(failure_of([&] { recompute([](const at::Tensor& in) { return in.mul_(2); }, at::ones({2})); }).what,
              HasSubstr("changes an input in place"));
  const at::Tensor y = recompute([&](const at::Tensor& in) { return in.mm(w); }, x).sum();
  EXPECT_THAT(failure_of([&] { torch::autograd::grad({y}, {x}, {}, true, true); }).what, HasSubstr("gradients of gradients"));
  int calls = 0;
  const at::Tensor other = leaf({4, 4}, 3);
  const at::Tensor fickle = recompute([&](const at::Tensor& in) { return in.mm(calls++ == 0 ? w : other); }, x).sum();
  EXPECT_THAT(failure_of([&] { fickle.backward(); }).what, HasSubstr("read other parameters when it ran again"));
}

TEST(Checkpoint, AFailureInTheSecondRunLeavesRandomNumbersInPeace) {
  const at::Tensor x = leaf({4}, 1);
  int calls = 0;
  const at::Tensor y = recompute(
      [&](const at::Tensor& in) {
        if (calls++ > 0) throw_failure(Kind::system, "no second time");
        return at::dropout(in, 0.5, true);
      },
      x);
  const at::Tensor before = at::globalContext().defaultGenerator(c10::kCPU).get_state();
  EXPECT_THAT(failure_of([&] { y.sum().backward(); }).what, HasSubstr("no second time"));
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(c10::kCPU).get_state(), before));
}

TEST(Recompute, AWeightGradientStaysInItsMemory) {
  Model model = make_model("mlp(in=12, hidden=9x8, out=5)", kTestSeed);
  model.wrap_blocks([](const Block& block, const at::Tensor& x) { return recompute(block, x); });
  loss_on(model, model.example(2)).value.backward();
  std::vector<void*> before, after;
  for (const auto& [name, p] : model.named_parameters()) before.push_back(p.grad().data_ptr());
  loss_on(model, model.example(2)).value.backward();
  for (const auto& [name, p] : model.named_parameters()) after.push_back(p.grad().data_ptr());
  EXPECT_EQ(before, after);
}

TEST(Recompute, KeepsTheInputsOfBlocksOnly) {
  Model model = make_model("gpt(vocab=64, context=32, d=32, heads=2, layers=6)", kTestSeed);
  const at::Tensor x = model.example(4);
  const auto bytes = measure_activations(model, x);
  ASSERT_EQ(bytes.size(), 8U);
  std::size_t all = 0, outputs = 0, largest = 0;
  for (const auto& [kept, output] : bytes) {
    all += kept;
    outputs += output;
    largest = std::max(largest, kept);
  }
  const auto kept_by_forward = [&] {
    const AllocationMeter meter;
    const at::Tensor y = model.forward(x);
    return meter.now();
  };
  EXPECT_NEAR(static_cast<double>(kept_by_forward()), static_cast<double>(all), 0.01 * static_cast<double>(all));
  model.wrap_blocks([](const Block& block, const at::Tensor& in) { return recompute(block, in); });
  const std::size_t left = kept_by_forward();
  EXPECT_GE(left, outputs);
  EXPECT_LE(left, outputs + 8 * 6000) << "and the state of random numbers, 5 KiB a block";
  EXPECT_LT(left, all / 5);
}

}  // namespace
}  // namespace cohort::nn
