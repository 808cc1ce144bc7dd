// Rules that are prepared before they update, in an engine: what layers saw (kfac), products over all tensors and the loss (lbfgs, cg).
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

using testing::HasSubstr;

constexpr const char* kConvolving = "cnn(in=1, size=8, classes=3, norm=group)";  // filters, vectors, a head
constexpr const char* kEmbedding = "gpt(vocab=11, context=5, d=16, heads=2, layers=1)";
constexpr const char* kOften = "kfac(factor_every=1, inverse_every=2)";

TrainCase busy(const std::string& rule, const char* model, std::size_t ranks) {
  TrainCase train_case{.model = model, .rule = rule, .steps = 4};
  train_case.rows = std::vector<std::int64_t>(ranks, 2);
  train_case.rows[ranks / 2] = 3;
  train_case.weight_decay = 0.1;
  train_case.options.clip_norm = optim::make(rule)->needs().loss ? 0 : 0.5;
  return train_case;
}

TrainCase sharded(TrainCase train_case, int stage, bool buddy, int lanes) {
  if (stage > 0) train_case.options.strategy = fmt::format("zero(stage={}, op=sum, buddy={})", stage, buddy);
  train_case.options.lanes = lanes;
  train_case.options.bucket = ByteSize{4096};
  train_case.options.first_bucket = ByteSize{300};
  return train_case;
}

struct Of {
  const char *rule, *model;
};
class SideRules : public testing::TestWithParam<Of> {};
INSTANTIATE_TEST_SUITE_P(Of, SideRules,
                         testing::Values(Of{kOften, kTinyMlp}, Of{"kfac(by=eigen)", kConvolving}, Of{"kfac", kEmbedding},
                                         Of{"ema(of=kfac)", kTinyMlp}, Of{"lbfgs(memory=3)", kTinyMlp}, Of{"cg", kConvolving},
                                         Of{"yellowfin", kTinyMlp}, Of{"eve", kTinyMlp}));

TEST_P(SideRules, EveryStageHasTheBitsOfStageZero) {
  for (const std::size_t ranks : {1, 2, 3}) {
    const auto reference = train_ranks(busy(GetParam().rule, GetParam().model, ranks));
    for (const auto& rank : reference) expect_same_bits(rank.params, reference[0].params, "ranks");
    for (const int stage : {1, 2, 3})
      expect_same_bits(train_ranks(sharded(busy(GetParam().rule, GetParam().model, ranks), stage, stage % 2 == 1, stage % 2)), reference,
                       fmt::format("{}, {} ranks, stage {}:", GetParam().rule, ranks, stage));
  }
}

TEST_P(SideRules, RanksEqualOneWithTheWholeBatch) {
  TrainCase train_case = busy(GetParam().rule, GetParam().model, 3);
  train_case.type = at::kDouble;
  const auto one = train_ranks(alone(train_case));
  for (const auto& rank : train_ranks(sharded(train_case, 1, false, 0))) expect_near(rank.params, one[0].params, 1e-7);
}

TEST(SideRules, WhatLayersSawIsScaledAsGradientsAre) {
  TrainCase sums = busy(kOften, kTinyMlp, 2), means = sums;
  means.options.strategy = "all_reduce(op=average)";
  means.grad_scale = 2;
  expect_same_bits(train_ranks(means)[0].params, train_ranks(sums)[0].params, "a mean of two ranks, times two");
}

TEST(SideRules, AccumulatedStepsAreThoseOfTheWholeBatch) {
  TrainCase train_case = busy(kOften, kTinyMlp, 2);
  train_case.type = at::kDouble;
  train_case.rows = {4, 4};
  const auto whole = train_ranks(train_case);
  train_case.micro = 2;
  for (const int stage : {0, 1, 3}) expect_near(train_ranks(sharded(train_case, stage, false, 0))[0].params, whole[0].params, 1e-9);
}

TEST(SideRules, WhereRanksStepByThemselvesTheirStatisticsAreTheirOwn) {
  TrainCase train_case{.rule = "yellowfin", .steps = 3, .rows = {2, 5}};
  train_case.options.strategy = "local_sgd(h=100)";
  const auto ranks = train_ranks(train_case);
  const auto tuner = [&](std::size_t rank) {
    for (const auto& [name, t] : ranks[rank].state)
      if (name.ends_with("/tuner")) return t;
    return at::Tensor();
  };
  EXPECT_GT(tuner(0).abs().max().item<double>(), 0);
  EXPECT_FALSE(at::equal(tuner(0), tuner(1)));
}

TEST(SideRules, KfacIsNotPlainMomentum) {
  const auto rule = [](const std::string& spec) { return train_ranks(busy(spec, kTinyMlp, 1))[0].params; };
  const Named kfac = rule("kfac(lr=0.1, momentum=0, kl_clip=0)"), sgd = rule("sgd(lr=0.1)");
  EXPECT_FALSE(at::allclose(kfac[0].second, sgd[0].second, 1e-3));
}

TEST(SideRules, ARuleThatLooksAtTheLossRefusesAnEngineThatIsNotTold) {
  collective::run_ranks(1, [](collective::Communicator& comm) {
    nn::Model model = nn::make_model(kTinyMlp, kTestSeed);
    Engine engine(comm, parameters_of(model), {.lanes = 0}, optim::make("lbfgs"));
    engine.begin({.step = 1, .lr = 1});
    EXPECT_THAT(failure_of([&] { engine.finish(); }).what, HasSubstr("looks at the loss of every step"));
  });
  collective::run_ranks(1, [](collective::Communicator& comm) {
    nn::Model model = nn::make_model(kTinyMlp, kTestSeed);
    const auto refused = [&](const EngineOptions& options) {
      return failure_of([&] { Engine(comm, parameters_of(model), options, optim::make("cg")); }).what;
    };
    EXPECT_THAT(refused({.clip_norm = 1}), HasSubstr("a clipped gradient is not that of the loss"));
    EXPECT_THAT(refused({.strategy = "local_sgd(h=4)"}), HasSubstr("looks at the loss of all ranks"));
  });
}

}  // namespace
}  // namespace cohort::engine
