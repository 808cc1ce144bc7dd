// Sharded stands for torch::optim in a loop of one's own: whatever the rule, its decay and its groups, both end with the same parameters.
#include "cohort/ddp/sharded.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "cohort/base/failure_of.h"
#include "cohort/base/spec.h"
#include "cohort/collective/ranks.h"
#include "cohort/ddp/data_parallel.h"
#include "cohort/ddp/layer_wise_reference.h"
#include "cohort/ddp/whole_tensor_reference.h"
#include "cohort/optim/rule.h"

namespace cohort::ddp::sharded_test {
namespace {

using collective::Communicator;
using collective::run_ranks;
using testing::HasSubstr;

constexpr std::int64_t kIn = 5, kHidden = 7, kOut = 3, kRows = 4;  // kRows: of each rank
constexpr int kSteps = 6;

at::Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) { return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble); }

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(kIn, kHidden)),
                    head = register_module("head", torch::nn::Linear(kHidden, kOut));
  explicit Net(std::uint64_t seed = 1) {
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(drawn(p.sizes(), seed++));
  }
};

using Forward = std::function<at::Tensor(const at::Tensor&)>;
at::Tensor loss_on(int step, std::int64_t first, std::int64_t rows, std::int64_t total, const Forward& forward) {
  const at::Tensor x = drawn({total, kIn}, 100 + static_cast<std::uint64_t>(step)), y = drawn({total, kOut}, 500);
  return (forward(x.slice(0, first, first + rows)) - y.slice(0, first, first + rows)).square().mean();
}

Forward plain(Net& net) {
  return [&net](const at::Tensor& x) { return net.head(torch::tanh(net.in(x))); };
}
Forward in_blocks(Net& net, Sharded& zero) {
  return [&net, &zero](const at::Tensor& x) {
    const at::Tensor hidden = zero.block("in", x, [&net](const at::Tensor& t) { return torch::tanh(net.in(t)); });
    return zero.block("head", hidden, [&net](const at::Tensor& t) { return net.head(t); });
  };
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(Net& net)>;
using Tensors = std::vector<at::Tensor>;

Tensors values(const Net& net) {
  Tensors all;
  for (const auto& p : net.parameters()) all.push_back(p.detach().clone());
  return all;
}

// The plain loop on the batch of all ranks.
Tensors train_alone(int ranks, const MakeOptimizer& make) {
  Net net;
  const auto optimizer = make(net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_on(step, 0, ranks * kRows, ranks * kRows, plain(net)).backward();
    optimizer->step();
  }
  return values(net);
}

Tensors train_data_parallel(Communicator& comm, const MakeOptimizer& make) {
  Net net;
  const auto optimizer = make(net);
  DataParallel ddp(comm, net, {.lanes = 0});
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_on(step, comm.rank().value * kRows, kRows, comm.size() * kRows, plain(net)).backward();
    optimizer->step();
  }
  return values(net);
}

Tensors train_sharded(Communicator& comm, int stage, const std::string& optimizer, const std::vector<ShardedGroup>& groups = {}) {
  Net net(1 + static_cast<std::uint64_t>(comm.rank().value) * 50);  // rank 0's values count
  Sharded zero(comm, net,
               {.stage = stage,
                .optimizer = optimizer,
                .bucket = ByteSize{100},
                .lanes = 0,
                .blocks = {{"in", net.in.ptr()}, {"head", net.head.ptr()}},
                .groups = groups});
  for (int step = 0; step < kSteps; ++step) {
    loss_on(step, comm.rank().value * kRows, kRows, comm.size() * kRows, in_blocks(net, zero)).backward();
    EXPECT_TRUE(zero.step().committed);
  }
  zero.engine().make_whole();
  return values(net);
}

void expect_close(const Tensors& a, const Tensors& b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::allclose(a[i], b[i], 1e-10, 1e-12)) << where << ", parameter " << i << "\n" << a[i] << "\n" << b[i];
}

// In a plain loop, in one with DataParallel and in one with Sharded.
void expect_agreement(const std::string& spec, const MakeOptimizer& make, const std::vector<ShardedGroup>& groups = {}) {
  at::set_num_threads(1);
  for (const int ranks : {1, 2}) {
    const Tensors reference = train_alone(ranks, make);
    run_ranks(ranks, [&](Communicator& comm) {
      expect_close(train_data_parallel(comm, make), reference, fmt::format("DataParallel, {} on {} ranks", spec, ranks));
      for (const int stage : {1, 2, 3})
        expect_close(train_sharded(comm, stage, spec, groups), reference, fmt::format("{} on {} ranks, stage {}", spec, ranks, stage));
    });
  }
}

template <class Rule, class RuleOptions>
MakeOptimizer all_of(const RuleOptions& options) {
  return [options](Net& net) { return std::make_unique<Rule>(net.parameters(), options); };
}

struct Case {
  std::string name, spec;
  MakeOptimizer make;
};
void PrintTo(const Case& given, std::ostream* out) { *out << given.spec; }

LayerWiseOptions own_rule(std::string_view rule, double scale, double decay) {
  return LayerWiseOptions(optim::make(rule)->default_lr() * scale).weight_decay(decay).rule(std::string(rule));
}
// Those that look at layers, at the loss or at all tensors together are told of none here: engine and train have their tests.
bool sees_gradients_only(std::string_view rule) {
  const optim::Needs needs = optim::make(rule)->needs();
  return !needs.taps && !needs.loss && rule != "yellowfin";
}
// Rules of the table that the cases leave out: libtorch does not have them.
std::vector<std::string_view> left_out(const std::vector<Case>& all) {
  std::vector<std::string_view> rules;
  for (const optim::Rule* rule : optim::rules())
    if (sees_gradients_only(rule->name) &&
        std::ranges::none_of(all, [&](const Case& one) { return Spec::parse(one.spec).name == rule->name; }))
      rules.push_back(rule->name);
  return rules;
}

std::vector<Case> cases() {
  using namespace torch::optim;
  std::vector<Case> all{
      {"Sgd", "sgd(lr=0.1, weight_decay=0.3)", all_of<SGD>(SGDOptions(0.1).weight_decay(0.3))},
      {"SgdMomentum", "sgd(lr=0.05, momentum=0.9, dampening=0.1, weight_decay=0.3)",
       all_of<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(0.3))},
      {"SgdNesterov", "sgd(lr=0.05, momentum=0.9, nesterov=true, weight_decay=0.3)",
       all_of<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.3))},
      {"Adam", "adam(lr=0.01, weight_decay=0.3)", all_of<Adam>(AdamOptions(0.01).weight_decay(0.3))},
      {"AdamAmsgrad", "adam(lr=0.01, weight_decay=0.3, amsgrad=true)", all_of<Adam>(AdamOptions(0.01).weight_decay(0.3).amsgrad(true))},
      {"Adamw", "adamw(lr=0.01, weight_decay=0.5)", all_of<AdamW>(AdamWOptions(0.01).weight_decay(0.5))},
      {"AdamwDefault", "adamw", all_of<AdamW>(AdamWOptions())},
      {"Adagrad", "adagrad(lr=0.05, weight_decay=0.3)", all_of<Adagrad>(AdagradOptions(0.05).weight_decay(0.3))},
      {"Rmsprop", "rmsprop(lr=0.01, weight_decay=0.3)", all_of<RMSprop>(RMSpropOptions(0.01).weight_decay(0.3))},
      {"RmspropMomentum", "rmsprop(lr=0.01, momentum=0.9, centered=true, weight_decay=0.3)",
       all_of<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true).weight_decay(0.3))},
      {"Lars", "lars(lr=3, weight_decay=0.3)", all_of<Lars>(LayerWiseOptions(3).weight_decay(0.3))},
      {"Lamb", "lamb(lr=0.02, weight_decay=0.3)", all_of<Lamb>(LayerWiseOptions(0.02).weight_decay(0.3))},
  };
  for (const auto rule : left_out(all))
    all.push_back({std::string(rule), fmt::format("{}(weight_decay=0.3)", rule), all_of<OwnRule>(own_rule(rule, 1, 0.3))});
  return all;
}

class ShardedRule : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, ShardedRule, testing::ValuesIn(cases()), [](const auto& given) { return given.param.name; });

TEST_P(ShardedRule, DecaysWeightsAsTorchDoes) { expect_agreement(GetParam().spec, GetParam().make); }

TEST(Sharded, NoRuleIgnoresItsWeightDecay) {
  for (const optim::Rule* rule : optim::rules())
    for (const int stage : {1, 2, 3}) {
      if (!sees_gradients_only(rule->name)) continue;
      run_ranks(2, [&](Communicator& comm) {
        const auto decayed = train_sharded(comm, stage, fmt::format("{}(weight_decay=0.5)", rule->name));
        const auto free = train_sharded(comm, stage, fmt::format("{}(weight_decay=0)", rule->name));
        for (std::size_t i = 0; i < free.size(); ++i)
          EXPECT_FALSE(at::allclose(decayed[i], free[i], 1e-10, 1e-12)) << rule->name << ", parameter " << i;
      });
    }
}

// The optimizer's own decay is 0: libtorch takes a group's value that equals the default of the options' type (0 of SGD) for not given.
template <class Rule, class RuleOptions>
std::unique_ptr<torch::optim::Optimizer> grouped(Net& net, const std::function<RuleOptions(double lr_scale, double decay)>& options) {
  using Group = torch::optim::OptimizerParamGroup;
  const auto group = [&](const Tensors& parameters, double lr_scale, double decay) {
    return Group(parameters, std::make_unique<RuleOptions>(options(lr_scale, decay)));
  };
  return std::make_unique<Rule>(
      std::vector<Group>{group({net.in->bias, net.head->bias}, 1, 0), group({net.head->weight}, 10, 0.3), group({net.in->weight}, 1, 0.2)},
      options(1, 0));
}

template <class Rule, class RuleOptions>
Case group_case(std::string name, std::string spec, std::function<RuleOptions(double lr_scale, double decay)> options) {
  return {std::move(name), std::move(spec), [options](Net& net) { return grouped<Rule, RuleOptions>(net, options); }};
}

// No learning rate here is a default of torch's times 1 or 10: libtorch would take it for not given, too.
std::vector<Case> group_cases() {
  using namespace torch::optim;
  std::vector<Case> all{
      group_case<SGD, SGDOptions>("Sgd", "sgd(lr=0.01, momentum=0.9, weight_decay=0.2)",
                                  [](double scale, double decay) { return SGDOptions(0.01 * scale).momentum(0.9).weight_decay(decay); }),
      group_case<Adam, AdamOptions>("Adam", "adam(lr=0.002, weight_decay=0.2)",
                                    [](double scale, double decay) { return AdamOptions(0.002 * scale).weight_decay(decay); }),
      group_case<AdamW, AdamWOptions>("Adamw", "adamw(lr=0.002, weight_decay=0.2)",
                                      [](double scale, double decay) { return AdamWOptions(0.002 * scale).weight_decay(decay); }),
      group_case<Adagrad, AdagradOptions>("Adagrad", "adagrad(lr=0.02, weight_decay=0.2)",
                                          [](double scale, double decay) { return AdagradOptions(0.02 * scale).weight_decay(decay); }),
      group_case<RMSprop, RMSpropOptions>("Rmsprop", "rmsprop(lr=0.002, weight_decay=0.2)",
                                          [](double scale, double decay) { return RMSpropOptions(0.002 * scale).weight_decay(decay); }),
      group_case<Lars, LayerWiseOptions>("Lars", "lars(lr=0.5, weight_decay=0.2)",
                                         [](double scale, double decay) { return LayerWiseOptions(0.5 * scale).weight_decay(decay); }),
      group_case<Lamb, LayerWiseOptions>("Lamb", "lamb(lr=0.002, weight_decay=0.2)",
                                         [](double scale, double decay) { return LayerWiseOptions(0.002 * scale).weight_decay(decay); }),
  };
  for (const auto rule : left_out(all))
    all.push_back(group_case<OwnRule, LayerWiseOptions>(std::string(rule), fmt::format("{}(weight_decay=0.2)", rule),
                                                        [rule](double scale, double decay) { return own_rule(rule, scale, decay); }));
  return all;
}

class ShardedGroups : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, ShardedGroups, testing::ValuesIn(group_cases()), [](const auto& given) { return given.param.name; });

TEST_P(ShardedGroups, AreTheParameterGroupsOfTorch) {
  const std::vector<ShardedGroup> groups{{.parameters = {"*.bias"}, .weight_decay = 0},
                                         {.parameters = {"head.*"}, .weight_decay = 0.3, .lr_scale = 10}};
  expect_agreement(GetParam().spec, GetParam().make, groups);
}

TEST(Sharded, WithOneDimensionalParametersLeftOutItDecaysWhatTrainerDoes) {
  const optim::Groups trainer({.weight_decay = 0.3});
  const auto as_trainer = [&](Net& net) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const auto& p : net.named_parameters()) {
      const optim::Group group = trainer.of({p.key(), p.value().sizes().vec()});
      groups.emplace_back(Tensors{p.value()}, std::make_unique<torch::optim::AdamWOptions>(
                                                  torch::optim::AdamWOptions(0.01 * group.lr_scale).weight_decay(group.weight_decay)));
    }
    return std::make_unique<torch::optim::AdamW>(groups);
  };
  expect_agreement("adamw(lr=0.01, weight_decay=0.3)", as_trainer, {{.parameters = {"*.bias"}, .weight_decay = 0}});
}

TEST(Sharded, AfterMakeWholeItEvaluatesAndRefusesToTrainSayingWhy) {
  run_ranks(2, [](Communicator& comm) {
    Net net;
    Sharded zero(comm, net, {.stage = 3, .lanes = 0, .blocks = {{"in", net.in.ptr()}, {"head", net.head.ptr()}}});
    loss_on(0, 0, kRows, kRows, in_blocks(net, zero)).backward();
    zero.step();
    zero.engine().make_whole();
    const auto ended =
        testing::AllOf(HasSubstr("a step after make_whole(), which ended training"), HasSubstr("make a new one of the module"));
    EXPECT_THAT(failure_of([&] { zero.step(); }).what, ended);
    EXPECT_THAT(failure_of([&] { loss_on(1, 0, kRows, kRows, plain(net)).backward(); }).what, ended);
    EXPECT_THAT(failure_of([&] { const auto pause = zero.no_sync(); }).what, ended);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(loss_on(1, 0, kRows, kRows, in_blocks(net, zero)).equal(loss_on(1, 0, kRows, kRows, plain(net))));
  });
}

TEST(Sharded, TakesAModuleOrWhatHoldsIt) {
  run_ranks(1, [](Communicator& comm) {
    torch::nn::Sequential holder(torch::nn::Linear(kIn, kOut));
    Sharded(comm, holder);
    Sharded(comm, *holder);
    const auto shared = std::make_shared<Net>();
    Sharded(comm, shared, {.stage = 2});
    EXPECT_THAT(failure_of([&] { Sharded(comm, *std::make_unique<std::shared_ptr<Net>>()); }).what, HasSubstr("holder is empty"));
  });
}

TEST(Sharded, OptionsThatDifferBetweenRanksAreRefusedOnAllOfThemByName) {
  run_ranks(2, [](Communicator& comm) {
    const bool other = comm.rank().value == 1;
    Net net;
    const auto refusal = [&](const ShardedOptions& mine, const ShardedOptions& theirs) {
      return failure_of([&] { Sharded(comm, net, other ? theirs : mine); }).what;
    };
    const auto both = [](const char* theirs, const char* first) {
      return HasSubstr(
          fmt::format("the options differ: '{}' on rank 1 but '{}' on rank 0; give every rank the same options", theirs, first));
    };
    EXPECT_THAT(refusal({.stage = 1}, {.stage = 2}), both("stage: 2", "stage: 1"));
    EXPECT_THAT(refusal({.optimizer = "adamw"}, {.optimizer = "sgd(lr=0.1)"}), both("optimizer: sgd(lr=0.1)", "optimizer: adamw"));
    EXPECT_THAT(refusal({.clip_norm = 1}, {}), both("clip_norm: 0", "clip_norm: 1"));
    EXPECT_THAT(refusal({.bucket = ByteSize{1_KiB}}, {.bucket = ByteSize{2_KiB}}), both("bucket: 2048 bytes", "bucket: 1024 bytes"));
    EXPECT_THAT(refusal({}, {.sum = true}), both("sum: true", "sum: false"));
    EXPECT_THAT(refusal({}, {.groups = {{.parameters = {"*.bias"}, .lr_scale = 2}}}),
                HasSubstr("'group of *.bias: weight_decay of the optimizer, lr_scale 2' on rank 1 but nothing on rank 0"));
    EXPECT_THAT(refusal({.stage = 3, .blocks = {{"in", net.in.ptr()}}}, {.stage = 3, .blocks = {{"in", net.head.ptr()}}}),
                both("block in: 24 elements", "block in: 42 elements"));
    EXPECT_EQ(refusal({.lanes = 0}, {.lanes = 1}), "(it did not fail)") << "ranks agree on the fewest";
  });
}

TEST(Sharded, RefusesGroupsThatCannotBeMeant) {
  run_ranks(2, [](Communicator& comm) {
    const auto refusal = [&](const ShardedGroup& group) {
      return failure_of([&] { train_sharded(comm, 1, "adamw", {{.parameters = {"*"}}, group}); }).what;
    };
    EXPECT_THAT(
        refusal({.parameters = {"haed.weight"}}),
        testing::AllOf(HasSubstr("groups[1]: the pattern \"haed.weight\" matches none of the 4"), HasSubstr("\"head.weight\" meant?")));
    EXPECT_THAT(refusal({.parameters = {}}), HasSubstr("groups[1] names no parameters"));
    EXPECT_THAT(refusal({.parameters = {"*"}, .weight_decay = -0.1}), HasSubstr("groups[1]: a weight decay of -0.1"));
    EXPECT_THAT(refusal({.parameters = {"*"}, .lr_scale = 0}), HasSubstr("lr_scale is 0 and must be above 0"));
  });
}

}  // namespace
}  // namespace cohort::ddp::sharded_test
