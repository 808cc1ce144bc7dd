// A run of Trainer is a loop of torch::optim: for every rule of the table, at every stage, with weight decay and parameter groups.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/base/file.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/own_dataset.h"
#include "cohort/nn/own_model.h"
#include "cohort/optim/rule.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train::rules_run_test {
namespace {

constexpr int kRanks = 2, kSamples = 8, kSteps = 6;  // a step takes the whole set: the order of samples is none of the law
constexpr double kRate = 0.01, kDecay = 0.3, kHeadScale = 3;
using Tensors = std::vector<at::Tensor>;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::linspace(-0.6, 0.5, p.numel()).reshape(p.sizes()));
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(hidden(torch::tanh(frozen(x))))); }
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(4, 5)),
                    hidden = register_module("hidden", torch::nn::Linear(5, 6)), head = register_module("head", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Net);

struct Waves {
  std::size_t size() const { return kSamples; }
  std::pair<at::Tensor, at::Tensor> get(std::size_t i) const {
    const at::Tensor x = torch::sin(torch::arange(1, 5).to(torch::kFloat) * static_cast<double>(i + 1));
    return {x, torch::stack({x.sum(), x.prod()})};
  }
};
nn::Loss squares(const at::Tensor& outputs, const at::Tensor& labels) { return {(outputs - labels).square().sum(), outputs.size(0)}; }

Tensors train(const std::string& rule, const std::string& sync, int ranks, bool grouped, const std::string& folder) {
  TrainConfig config;
  config.optimizer = fmt::format("{}(lr={}, weight_decay={})", rule, kRate, kDecay);
  config.sync = sync;
  config.data.batch = kSamples / ranks;
  config.epochs = kSteps;
  config.optim.schedule = "constant";
  config.optim.decay_1d = !grouped;
  if (grouped) config.optim.frozen = {"frozen.*"};
  if (grouped) config.optim.lr_scale = {fmt::format("head.*: {}", kHeadScale)};
  config.checkpoint.every_epochs = 0;
  config.observe.tensorboard = config.observe.report = false;
  config.threads = 1;
  config.out = folder;
  Tensors ended;
  collective::run_ranks(ranks, [&](collective::Communicator& comm) {
    ModelAndData own{.model = nn::model_of(Net()), .train = nn::dataset_of(Waves{}), .objective = {.loss = squares}};
    Trainer trainer(comm, config, ranks, ranks, std::move(own));
    trainer.run();
    trainer.loop().engine().make_whole();
    if (comm.rank().value != 0) return;
    for (const auto& [name, p] : trainer.loop().model().named_parameters()) ended.push_back(p.detach().clone());
  });
  return ended;
}

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> made(Net& net, bool grouped) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& item : net->named_parameters()) {
    if (grouped && item.key().starts_with("frozen.")) continue;
    const bool head = grouped && item.key().starts_with("head.");
    auto options = std::make_unique<Options>(kRate * (head ? kHeadScale : 1));
    options->weight_decay(grouped && item.value().dim() == 1 ? 0 : kDecay);
    groups.emplace_back(Tensors{item.value()}, std::move(options));
  }
  return std::make_unique<Optimizer>(groups, Options(kRate).weight_decay(0));
}

// None: torch has no such rule, and its run on one rank is what the others are compared with.
std::unique_ptr<torch::optim::Optimizer> of_torch(std::string_view rule, Net& net, bool grouped) {
  using namespace torch::optim;
  if (rule == "sgd") return made<SGD, SGDOptions>(net, grouped);
  if (rule == "adam") return made<Adam, AdamOptions>(net, grouped);
  if (rule == "adamw") return made<AdamW, AdamWOptions>(net, grouped);
  if (rule == "adagrad") return made<Adagrad, AdagradOptions>(net, grouped);
  if (rule == "rmsprop") return made<RMSprop, RMSpropOptions>(net, grouped);
  return nullptr;
}

Tensors train_plainly(std::string_view rule, bool grouped) {
  Net net;
  const auto optimizer = of_torch(rule, net, grouped);
  if (!optimizer) return {};
  Tensors inputs, labels;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const auto [x, y] = Waves{}.get(i);
    inputs.push_back(x);
    labels.push_back(y);
  }
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    (squares(net->forward(torch::stack(inputs)), torch::stack(labels)).value / kSamples).backward();
    optimizer->step();
  }
  Tensors ended;
  for (const auto& p : net->parameters()) ended.push_back(p.detach().clone());
  return ended;
}

TEST(RulesRun, EveryRuleOfTrainerIsThatOfTorchAtEveryStageWithDecayAndGroups) {
  at::set_num_threads(1);
  testing::internal::CaptureStdout();
  const TempDir dir;
  int runs = 0;
  for (const optim::Rule* rule : optim::rules())
    for (const bool grouped : {false, true}) {
      const std::string name(rule->name);
      const auto folder = [&] { return dir.file(fmt::to_string(runs++)); };
      Tensors reference = train_plainly(name, grouped);
      if (reference.empty()) reference = train(name, "all_reduce", 1, grouped, folder());
      for (const char* sync : {"all_reduce", "zero(stage=1)", "zero(stage=2)", "zero(stage=3)"}) {
        const Tensors ended = train(name, sync, kRanks, grouped, folder());
        ASSERT_EQ(ended.size(), reference.size());
        for (std::size_t i = 0; i < ended.size(); ++i)
          EXPECT_LT((ended[i] - reference[i]).abs().max().item<double>(), 2e-5)
              << name << ", " << sync << (grouped ? ", groups" : "") << ", parameter " << i;
      }
    }
  testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace cohort::train::rules_run_test
