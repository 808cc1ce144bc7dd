#include "cohort/nn/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "cohort/base/failure_of.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType type) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble).to(type);
}

struct Case {
  std::vector<std::int64_t> tail;  // sizes behind [n, channels]
  std::vector<std::int64_t> rows;  // samples of each rank
  at::ScalarType type;
  double tolerance;
  std::optional<double> momentum = 0.1;
  bool affine = true;
};

BatchNormOptions options_of(const Case& c) { return {.features = 5, .eps = 1e-5, .momentum = c.momentum, .affine = c.affine}; }

// Weights that are neither 1 nor 0, the same on every rank.
void prepare(SyncBatchNormImpl& norm, at::ScalarType type) {
  norm.to(type);
  const at::NoGradGuard no_grad;
  if (!norm.weight.defined()) return;
  norm.weight.copy_(drawn({5}, 11, type));
  norm.bias.copy_(drawn({5}, 12, type));
}

struct Outcome {
  at::Tensor y, dx, dweight, dbias, mean, var;
};

// Two batches, so that running statistics have a past; the loss weighs every output differently.
Outcome run(SyncBatchNormImpl& norm, const at::Tensor& x, const at::Tensor& weights) {
  norm.forward(x * 2 + 1);
  const at::Tensor input = x.clone().requires_grad_(true);
  const at::Tensor y = norm.forward(input);
  (y * weights).sum().backward();
  const at::Tensor none;
  return {
      y.detach(),        input.grad(),    norm.weight.defined() ? norm.weight.grad() : none, norm.bias.defined() ? norm.bias.grad() : none,
      norm.running_mean, norm.running_var};
}

void expect_near(const at::Tensor& a, const at::Tensor& b, double tolerance, const char* what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * std::max(1.0, b.abs().max().item<double>())) << what;
}

void expect_as_one(const Case& c) {
  std::int64_t total = 0;
  for (const std::int64_t n : c.rows) total += n;
  std::vector<std::int64_t> sizes{total, 5};
  sizes.insert(sizes.end(), c.tail.begin(), c.tail.end());
  const at::Tensor x = drawn(sizes, 1, c.type) * 3 + 10;
  const at::Tensor weights = drawn(sizes, 2, c.type);

  SyncBatchNorm alone(options_of(c));  // no communicator: torch's own batch norm
  prepare(*alone, c.type);
  const Outcome whole = run(*alone, x, weights);

  std::mutex mutex;
  at::Tensor dweight, dbias;
  run_ranks(static_cast<int>(c.rows.size()), [&](Communicator& comm) {
    std::int64_t first = 0;
    for (int r = 0; r < comm.rank().value; ++r) first += c.rows[static_cast<std::size_t>(r)];
    const std::int64_t last = first + c.rows[static_cast<std::size_t>(comm.rank().value)];
    SyncBatchNorm norm(options_of(c));
    prepare(*norm, c.type);
    norm->use(&comm);
    const Outcome part = run(*norm, x.slice(0, first, last), weights.slice(0, first, last));
    const std::lock_guard lock(mutex);
    expect_near(part.y, whole.y.slice(0, first, last), c.tolerance, "output");
    expect_near(part.dx, whole.dx.slice(0, first, last), c.tolerance, "input gradient");
    expect_near(part.mean, whole.mean, c.tolerance, "running mean");
    expect_near(part.var, whole.var, c.tolerance, "running variance");
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 2);
    if (!c.affine) return;
    dweight = dweight.defined() ? dweight + part.dweight : part.dweight;
    dbias = dbias.defined() ? dbias + part.dbias : part.dbias;
  });
  if (!c.affine) return;
  expect_near(dweight, whole.dweight, c.tolerance, "weight gradient, added up");
  expect_near(dbias, whole.dbias, c.tolerance, "bias gradient, added up");
}

TEST(SyncBatchNorm, ManyRanksAreOneRankWithTheWholeBatch) {
  expect_as_one({.tail = {4, 3}, .rows = {2, 2}, .type = at::kDouble, .tolerance = 1e-12});
  expect_as_one({.tail = {4, 3}, .rows = {3, 3, 3, 3}, .type = at::kFloat, .tolerance = 1e-5});
}

TEST(SyncBatchNorm, BatchesMayBeUnevenOrEmpty) {
  expect_as_one({.tail = {4, 3}, .rows = {5, 1, 2}, .type = at::kDouble, .tolerance = 1e-12});
  expect_as_one({.tail = {2, 2}, .rows = {4, 0, 3}, .type = at::kDouble, .tolerance = 1e-12});
  expect_as_one({.tail = {2, 2}, .rows = {0, 6}, .type = at::kFloat, .tolerance = 1e-5});
}

TEST(SyncBatchNorm, AnyNumberOfDimensions) {
  expect_as_one(
      {.tail = {}, .rows = {1, 1, 1}, .type = at::kDouble, .tolerance = 1e-12});  // one sample each: only together they have a variance
  expect_as_one({.tail = {7}, .rows = {2, 3}, .type = at::kDouble, .tolerance = 1e-12});
  expect_as_one({.tail = {2, 3, 2}, .rows = {2, 1}, .type = at::kDouble, .tolerance = 1e-12});
}

TEST(SyncBatchNorm, WithoutWeightsAndWithPlainAverages) {
  expect_as_one({.tail = {3, 3}, .rows = {2, 1}, .type = at::kDouble, .tolerance = 1e-12, .affine = false});
  expect_as_one({.tail = {3, 3}, .rows = {2, 1}, .type = at::kDouble, .tolerance = 1e-12, .momentum = std::nullopt});
}

TEST(SyncBatchNorm, AWorldOfOneIsTorchsBatchNorm) {
  torch::nn::BatchNorm2d reference(5);
  SyncBatchNorm norm(5);
  const at::Tensor x = drawn({4, 5, 3, 3}, 1, at::kFloat);
  EXPECT_TRUE(at::equal(norm(x), reference(x)));
  EXPECT_TRUE(at::equal(norm->running_var, reference->running_var));
  norm->eval();
  reference->eval();
  EXPECT_TRUE(at::equal(norm(x), reference(x)));
  expect_as_one({.tail = {3, 3}, .rows = {4}, .type = at::kDouble, .tolerance = 1e-12});
}

TEST(SyncBatchNorm, GradientsAreThoseOfFiniteDifferences) {
  run_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(5);
    prepare(*norm, at::kDouble);
    norm->use(&comm);
    const auto seed = static_cast<std::uint64_t>(comm.rank().value);
    at::Tensor x = drawn({2, 5, 2}, seed, at::kDouble).requires_grad_(true);
    const at::Tensor weights = drawn({2, 5, 2}, seed + 10, at::kDouble);
    const auto loss = [&] {  // of both ranks, on both
      const at::NoGradGuard no_grad;
      const at::Tensor mine = (norm(x) * weights).sum();
      const auto value = mine.item<double>();
      std::array<double, 1> sum{value};
      comm.all_reduce(collective::piece(std::span<double>(sum)), collective::Op::sum);
      return sum[0];
    };
    (norm(x) * weights).sum().backward();
    constexpr double kStep = 1e-6;
    for (int r = 0; r < 2; ++r) {  // move one element of one rank, every rank looks
      double* element = x.data_ptr<double>() + 3;
      const double mine = comm.rank().value == r ? kStep : 0;
      *element += mine;
      const double up = loss();
      *element -= 2 * mine;
      const double down = loss();
      *element += mine;
      if (comm.rank().value != r) continue;
      EXPECT_NEAR((up - down) / (2 * kStep), x.grad().view({-1})[3].item<double>(), 1e-7);
    }
  });
}

TEST(SyncBatchNorm, SixteenBitInputsAreAddedUpInThirtyTwo) {
  run_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(2);
    norm->use(&comm);
    const at::Tensor x = drawn({64, 2, 8}, static_cast<std::uint64_t>(comm.rank().value), at::kBFloat16).requires_grad_(true);
    const at::Tensor y = norm(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(y.to(at::kFloat).square().mean().item<double>(), 1.0, 0.1);
    y.sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  });
}

TEST(SyncBatchNorm, OneValuePerChannelIsRefusedByEveryRank) {
  run_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(2);
    norm->use(&comm);
    const at::Tensor x = at::zeros({comm.rank().value, 2});
    EXPECT_THAT(failure_of([&] { norm(x); }).what, HasSubstr("one value per channel over all 2 ranks"));
    norm(at::zeros({1, 2}));  // and the communicator still works
  });
}

TEST(SyncBatchNorm, SecondDerivativesAreRefused) {
  run_ranks(1, [](Communicator& comm) {
    SyncBatchNorm norm(2);
    norm->use(&comm);
    const at::Tensor x = at::ones({3, 2}).requires_grad_(true);
    const Error error = failure_of([&] { torch::autograd::grad({norm(x).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true); });
    EXPECT_THAT(error.what, HasSubstr("no second derivative"));
  });
}

TEST(SyncBatchNorm, ClonesHaveTensorsOfTheirOwn) {
  SyncBatchNorm norm(3);
  norm(drawn({4, 3}, 1, at::kFloat));
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(at::equal(copy->running_mean, norm->running_mean));
  EXPECT_TRUE(copy->named_parameters()["weight"].is_same(copy->weight));
  EXPECT_FALSE(copy->weight.is_same(norm->weight));
  EXPECT_TRUE(copy->weight.requires_grad());
}

TEST(SyncBatchNorm, NamesShapesItCannotTake) {
  SyncBatchNorm norm(2);
  EXPECT_THAT(failure_of([&] { norm(at::zeros({4, 3})); }).what, HasSubstr("wants [n, 2, ...], not [4, 3]"));
  EXPECT_EQ(failure_of([&] { norm(at::zeros({2})); }).kind, Kind::usage);
}

TEST(ConvertSyncBatchNorm, ReplacesByNameAndKeepsTheTensors) {
  run_ranks(2, [](Communicator& comm) {
    torch::nn::Sequential features(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::BatchNorm2d(4));
    const auto net = std::make_shared<torch::nn::Module>();
    net->register_module("features", features);
    const auto before = net->named_parameters();
    EXPECT_EQ(convert_sync_batchnorm(*net, comm), 2);
    const auto after = net->named_parameters();
    ASSERT_EQ(after.keys(), before.keys());
    for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()])) << item.key();
    features->forward(at::ones({1, 1, 5, 5}) * comm.rank().value);
    EXPECT_EQ(net->named_buffers()["features.1.num_batches_tracked"].item<std::int64_t>(), 1);
    const at::Tensor mean = net->named_buffers()["features.3.running_mean"];
    std::vector<float> seen(mean.data_ptr<float>(), mean.data_ptr<float>() + 4);
    comm.broadcast(collective::piece(std::span<float>(seen)), Rank{0});
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(seen[i], mean.data_ptr<float>()[i]);  // each rank alone would see another batch
  });
}

TEST(ConvertSyncBatchNorm, TellsAModelOfTheZoo) {
  std::mutex mutex;
  const Model whole = make_model("cnn(size=8, norm=batch)", kTestSeed);
  const at::Tensor x = whole.example(6);
  const at::Tensor expected = whole.forward(x).detach();
  run_ranks(3, [&](Communicator& comm) {
    const Model model = make_model("cnn(size=8, norm=batch)", kTestSeed);
    EXPECT_EQ(convert_sync_batchnorm(model.root(), comm), 2);
    const std::int64_t first = 2 * comm.rank().value;
    const at::Tensor logits = model.forward(x.slice(0, first, first + 2));
    logits.sum().backward();
    const std::lock_guard lock(mutex);
    expect_near(logits.detach(), expected.slice(0, first, first + 2), 1e-5, "logits");
  });
}

struct Holder : torch::nn::Module {
  Holder() { norm = register_module("norm", torch::nn::BatchNorm1d(3)); }
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(ConvertSyncBatchNorm, RefusesWhatAMemberWouldGoOnCalling) {
  run_ranks(1, [](Communicator& comm) {
    const auto root = std::make_shared<torch::nn::Module>();
    SyncBatchNorm ours(2);
    root->register_module("ours", ours.ptr());
    root->register_module("theirs", std::make_shared<Holder>());
    EXPECT_THAT(failure_of([&] { convert_sync_batchnorm(*root, comm); }).what, HasSubstr("'theirs.norm' is held by a C++ member"));
    EXPECT_EQ(ours->communicator(), nullptr);  // nothing changed
  });
}

}  // namespace
}  // namespace cohort::nn
