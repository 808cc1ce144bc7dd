// n ranks equal one rank with n times the batch, whatever the model and the optimizer.
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

class Equivalence : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, Equivalence,
                         testing::Values(kTinyMlp, "cnn(in=1, size=8, classes=3, norm=group)",
                                         "lstm(vocab=11, embed=6, hidden=8, layers=2, context=5)",
                                         "transformer(classes=3, vocab=11, context=5, d=8, heads=2, layers=1)",
                                         "gpt(vocab=11, context=5, d=8, heads=2, layers=1)"),
                         [](const auto& given) { return std::string(given.param).substr(0, std::string(given.param).find('(')); });

TEST_P(Equivalence, GradientsOfThreeRanksAreThoseOfOneWithTheWholeBatch) {
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-5}, std::pair{at::kDouble, 1e-12}}) {
    const TrainCase train_case{.model = GetParam(), .type = type, .rule = "", .rows = {2, 2, 2}};
    const auto one = train_ranks(alone(train_case));
    for (const auto& rank : train_ranks(train_case)) expect_near(rank.grads, one[0].grads, tolerance);
  }
}

TEST_P(Equivalence, ParametersOfTwoRanksAfterTwentySteps) {
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-4}, std::pair{at::kDouble, 1e-11}}) {
    const TrainCase train_case{.model = GetParam(), .type = type, .rule = "sgd(lr=0.05, momentum=0.9)", .steps = 20, .rows = {2, 2}};
    const auto one = train_ranks(alone(train_case));
    const auto two = train_ranks(train_case);
    expect_near(two[0].params, one[0].params, tolerance);
    expect_same_bits(two[0].params, two[1].params, "rank 0 and rank 1");
  }
}

// Uneven and empty batches: the loss is a sum divided by the global count, gradients are summed.
TEST(Batches, UnevenAndEmptyOnesEqualTheWholeBatch) {
  for (const auto& rows : {std::vector<std::int64_t>{5, 2, 1}, {8, 0, 0}, {0, 8, 0}, {3, 5, 0}}) {
    const TrainCase train_case{.type = at::kDouble, .steps = 5, .rows = rows};
    const auto one = train_ranks(alone(train_case));
    for (const int lanes : {0, 2}) {
      TrainCase with = train_case;
      with.options.lanes = lanes;
      with.options.bucket = ByteSize{1};
      for (const auto& rank : train_ranks(with)) expect_near(rank.params, one[0].params, 1e-12);
    }
  }
}

TEST(Batches, AveragingRanksOfEqualBatchesIsTheMeanLoss) {
  TrainCase train_case{.type = at::kDouble, .steps = 3, .rows = {4, 4}};
  const auto sum = train_ranks(train_case);
  train_case.options.strategy = "all_reduce(op=average)";
  train_case.grad_scale = 2;  // the loss above is already divided by both batches
  expect_near(train_ranks(train_case)[0].params, sum[0].params, 1e-14);
}

// Against libtorch's own, step for step: the reference trains the same model by hand on the whole batch.
using MakeTorch = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

void expect_equals_torch(const std::string& rule, double decay, const MakeTorch& make) {
  at::set_num_threads(1);
  const nn::Model model = nn::make_model(kTinyMlp, kTestSeed);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, t] : model.named_parameters()) tensors.push_back(t);
  const auto torch_rule = make(tensors);
  std::vector<Named> history;
  for (int step = 1; step <= 20; ++step) {
    torch_rule->zero_grad();
    loss_of_rows(model, at::kFloat, step, 8, 0, 8).backward();
    torch_rule->step();
    history.push_back(copies(model.named_parameters()));
  }
  const TrainCase train_case{.rule = rule, .steps = 20, .weight_decay = decay, .after_finish = [&](const CallbackContext& c) {
                               expect_near(copies(c.model.named_parameters()), history[static_cast<std::size_t>(c.step - 1)], 1e-6,
                                           rule + " step " + std::to_string(c.step));
                             }};
  train_ranks(train_case);
}

TEST(Rules, ThroughTheEngineEqualLibtorchStepForStep) {
  using namespace torch::optim;
  expect_equals_torch("sgd(lr=0.1)", 0, [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1)); });
  expect_equals_torch("sgd(lr=0.1, momentum=0.9)", 0.01,
                      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9).weight_decay(0.01)); });
  expect_equals_torch("sgd(lr=0.1, momentum=0.9, nesterov=true)", 0.01,
                      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)); });
  expect_equals_torch("adam(lr=0.01)", 0.01, [](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).weight_decay(0.01)); });
  expect_equals_torch("adamw(lr=0.01)", 0.1, [](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01).weight_decay(0.1)); });
  expect_equals_torch("adagrad(lr=0.05)", 0.01,
                      [](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.05).weight_decay(0.01)); });
  expect_equals_torch("rmsprop(lr=0.01, momentum=0.9)", 0.01,
                      [](auto p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.9).weight_decay(0.01)); });
}

}  // namespace
}  // namespace cohort::engine
