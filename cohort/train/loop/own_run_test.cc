// A model, data and a loss that the program brings itself, through the Trainer.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/collective/ranks.h"
#include "cohort/nn/own_dataset.h"
#include "cohort/nn/own_model.h"
#include "cohort/train/loop/elastic_trainer.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() : hidden(register_module("hidden", torch::nn::Linear(4, 8))), out(register_module("out", torch::nn::Linear(8, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden, out;
};
TORCH_MODULE(Net);

struct Waves {
  std::size_t count;
  std::size_t size() const { return count; }
  std::pair<at::Tensor, at::Tensor> get(std::size_t i) const {
    const at::Tensor x = torch::sin(torch::arange(1, 5).to(torch::kFloat) * static_cast<double>(i));
    return {x, torch::stack({x.sum(), x.prod()})};
  }
};

// Not torch's: the first target counts three times as much, and a sample counts once.
nn::Loss weighted(const at::Tensor& outputs, const at::Tensor& labels) {
  return {((outputs - labels).square() * torch::tensor({3.0F, 1.0F})).sum(), outputs.size(0)};
}
double absolute(const at::Tensor& outputs, const at::Tensor& labels) { return (outputs - labels).abs().sum().item<double>(); }

ModelAndData own() {
  return {.model = nn::model_of(Net()),
          .train = nn::dataset_of(Waves{37}),
          .test = nn::dataset_of(Waves{11}),
          .objective = {.loss = weighted, .metrics = {{"mae", absolute}}}};
}

TrainConfig config_in(const std::string& folder, int batch) {
  TrainConfig config;
  config.data.batch = batch;
  config.epochs = 3;
  config.optimizer = "sgd(lr=0.05, momentum=0.9)";
  config.observe.tensorboard = config.observe.report = false;
  config.threads = 1;
  config.out = folder;
  return config;
}

struct Ran {
  RunSummary summary;
  nn::NamedTensors parameters;
};

// Rank r draws other first values than rank 0: those of rank 0 count. `steps`: how many to make now.
Ran run(int ranks, const TrainConfig& config, std::int64_t steps = 0) {
  at::set_num_threads(1);
  Ran ran;
  std::vector<ModelAndData> made;
  for (int r = 0; r < ranks; ++r) {
    torch::manual_seed(static_cast<std::uint64_t>(r) + 1);
    made.push_back(own());
  }
  collective::run_ranks(ranks, [&](collective::Communicator& comm) {
    Trainer trainer(comm, config, 4, ranks, std::move(made[static_cast<std::size_t>(comm.rank().value)]));
    if (steps > 0)
      trainer.after_step([&](TrainLoop& loop) {
        if (loop.step() == steps) trainer.leave("a test");
      });
    const RunSummary summary = trainer.run();
    if (comm.rank().value != 0) return;
    ran.summary = summary;
    for (const auto& [name, p] : trainer.loop().model().named_parameters()) ran.parameters.emplace_back(name, p.detach().clone());
  });
  return ran;
}

TEST(OwnRun, ThreeRanksEqualOneWithThreeTimesTheBatch) {  // 37 samples: the last batch is short, and one rank has nothing in it
  const TempDir folder;
  const Ran one = run(1, config_in(folder.file("one"), 12)), three = run(3, config_in(folder.file("three"), 4));
  EXPECT_EQ(one.summary.steps, three.summary.steps);
  for (std::size_t i = 0; i < one.parameters.size(); ++i)
    EXPECT_LT((one.parameters[i].second - three.parameters[i].second).abs().max().item<double>(), 2e-6) << one.parameters[i].first;
  EXPECT_NEAR(one.summary.test.loss, three.summary.test.loss, 1e-6);
  EXPECT_NEAR(one.summary.test.metric("mae"), three.summary.test.metric("mae"), 1e-6);
  EXPECT_EQ(three.summary.test.samples, 11);
}

TEST(OwnRun, EveryRankKnowsThatTheLastCheckpointCouldNotBeWrittenAndWhatIsLost) {
  const TempDir folder;
  TrainConfig config = config_in(folder.file("run"), 12);
  config.checkpoint.last_try = Seconds{0};
  std::vector<RunSummary> summaries(2);
  collective::run_ranks(2, [&](collective::Communicator& comm) {
    Trainer trainer(comm, config, 4, 2, own());
    trainer.after_step([&](TrainLoop& loop) {  // a file where the folder of checkpoints was
      if (comm.rank() != Rank{0} || !loop.done()) return;
      remove_tree(config.out + "/checkpoints");
      write_file_atomically(config.out + "/checkpoints", "no folder");
    });
    summaries[static_cast<std::size_t>(comm.rank().value)] = trainer.run();
  });
  for (const RunSummary& summary : summaries) {
    EXPECT_FALSE(summary.saved);
    EXPECT_THAT(not_saved_text(summary), HasSubstr("its last checkpoint could not be written: updates "));
    EXPECT_EQ(summary.lost, summaries[0].lost);
  }
}

// -100: the loss leaves it out.
TEST(OwnRun, AnEvaluationThatCountsNothingSaysSoAndHasNoNumbers) {
  struct Unlabelled : Waves {
    std::pair<at::Tensor, at::Tensor> get(std::size_t i) const { return {Waves::get(i).first, torch::tensor(-100)}; }
  };
  struct Labelled : Waves {
    std::pair<at::Tensor, at::Tensor> get(std::size_t i) const {
      return {Waves::get(i).first, torch::tensor(static_cast<std::int64_t>(i % 2))};
    }
  };
  const TempDir folder;
  TrainConfig config = config_in(folder.file("run"), 12);
  config.epochs = 1;
  testing::internal::CaptureStderr();
  RunSummary summary;
  collective::run_ranks(1, [&](collective::Communicator& comm) {
    Trainer trainer(
        comm, config, 4, 1,
        {.model = nn::model_of(Net()),
         .train = nn::dataset_of(Labelled{{37}}),
         .test = nn::dataset_of(Unlabelled{{11}}),
         .objective = {.loss = [](const at::Tensor& outputs, const at::Tensor& labels) {
           const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
           return nn::Loss{torch::nn::functional::cross_entropy(outputs, labels, sum), labels.ne(-100).sum().item<std::int64_t>()};
         }}});
    summary = trainer.run();
  });
  EXPECT_EQ(summary.test.samples, 0);
  EXPECT_EQ(summary.test.loss, 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("nothing was evaluated: none of the labels of the 11 samples of data.test counts"));
  EXPECT_THAT(read_file(config.out + "/metrics.jsonl"), testing::Not(HasSubstr("test_loss")));
}

TEST(OwnRun, LossAndMetricAreThoseOfOneForwardOverTheWholeSet) {
  const TempDir folder;
  TrainConfig config = config_in(folder.file("run"), 4);
  const Ran ran = run(3, config);
  Net net;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, value] : ran.parameters) net->named_parameters()[name].copy_(value);
  std::vector<at::Tensor> inputs, labels;
  for (std::size_t i = 0; i < 11; ++i) {
    const auto [x, y] = Waves{11}.get(i);
    inputs.push_back(x);
    labels.push_back(y);
  }
  const at::Tensor outputs = net->forward(torch::stack(inputs)), targets = torch::stack(labels);
  EXPECT_NEAR(ran.summary.test.loss, weighted(outputs, targets).value.item<double>() / 11, 1e-5);
  EXPECT_NEAR(ran.summary.test.metric("mae"), absolute(outputs, targets) / 11, 1e-5);
  const std::string metrics = read_file(config.out + "/metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr("\"test_mae\":"));
  EXPECT_THAT(metrics, testing::Not(HasSubstr("accuracy")));
  EXPECT_THAT(summary_text(ran.summary), HasSubstr("test mae"));
  EXPECT_THAT(read_file(config.out + "/config.yaml"), HasSubstr("model: \"own\""));
}

TEST(OwnRun, ResumesBitForBit) {
  const TempDir folder;
  const Ran whole = run(2, config_in(folder.file("whole"), 4));
  const TrainConfig parts = config_in(folder.file("parts"), 4);
  EXPECT_TRUE(run(2, parts, 6).summary.left);
  const Ran again = run(2, parts);
  EXPECT_EQ(again.summary.steps, whole.summary.steps);
  for (std::size_t i = 0; i < whole.parameters.size(); ++i)
    EXPECT_TRUE(at::equal(whole.parameters[i].second, again.parameters[i].second)) << whole.parameters[i].first;
}

TEST(OwnRun, ShardedParametersTakeTheBlocksOfASequential) {
  const TempDir folder;
  std::vector<std::vector<at::Tensor>> ended(2);
  for (const char* sync : {"all_reduce(op=sum)", "zero(stage=3, op=sum)"}) {
    TrainConfig config = config_in(folder.file(sync), 4);
    config.sync = sync;
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      torch::nn::Sequential layers(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
      const torch::NoGradGuard no_grad;
      for (auto& p : layers->parameters()) p.copy_(torch::linspace(-0.5, 0.5, p.numel()).reshape(p.sizes()));
      const at::AutoGradMode grad(true);
      ModelAndData m = own();
      m.model = nn::model_of(layers);
      Trainer trainer(comm, config, 4, 2, std::move(m));
      const double loss = trainer.run().test.loss;
      if (comm.rank().value == 0) ended[config.sync == "all_reduce(op=sum)" ? 0 : 1] = {torch::tensor(loss, torch::kDouble)};
    });
  }
  EXPECT_NEAR(ended[0][0].item<double>(), ended[1][0].item<double>(), 1e-6);
}

Error refused(const std::function<void(ModelAndData&, TrainConfig&)>& change) {
  const TempDir folder;
  return failure_of([&] {
    collective::run_ranks(1, [&](collective::Communicator& comm) {
      ModelAndData m = own();
      TrainConfig config = config_in(folder.file("run"), 4);
      change(m, config);
      Trainer(comm, config, 4, 1, std::move(m));
    });
  });
}

TEST(OwnRun, RefusesWhatDoesNotFitBeforeTheFirstStep) {
  const auto expect = [](const std::string& part, const std::function<void(ModelAndData&, TrainConfig&)>& change) {
    const Error error = refused(change);
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, HasSubstr(part));
  };
  expect("takes samples of 4, the data set has 4: mat1",
         [](ModelAndData& m, TrainConfig&) { m.model = nn::model_of(torch::nn::Linear(5, 2)); });
  expect("the loss or a metric does not take what model 'own' gives for a sample, [1, 3] Float, with its labels, [1, 2] Float",
         [](ModelAndData& m, TrainConfig&) { m.model = nn::model_of(torch::nn::Linear(4, 3)); });
  expect("it must be one number", [](ModelAndData& m, TrainConfig&) {
    m.objective.loss = [](const at::Tensor& outputs, const at::Tensor&) { return nn::Loss{outputs, 1}; };
  });
  expect("optim.label_smoothing is of the cross entropy", [](ModelAndData&, TrainConfig& config) { config.optim.label_smoothing = 0.1; });
  expect("there is no training set", [](ModelAndData& m, TrainConfig&) { m.train = nullptr; });
  expect("data.test has samples of 3", [](ModelAndData& m, TrainConfig&) {
    m.test = nn::dataset_of([](std::int64_t) { return nn::OwnSample{torch::zeros({3}), torch::zeros({2})}; }, 5, {});
  });
}

// What torch says where the loss does not fit in this call of it. The first two are on one sample, before training.
std::string thrown_in(int call) {
  const TempDir folder;
  std::string said;
  int calls = 0;
  collective::run_ranks(1, [&](collective::Communicator& comm) {
    ModelAndData m = own();
    m.objective.loss = [call, &calls](const at::Tensor& outputs, const at::Tensor& labels) {
      return weighted(++calls == call ? outputs.narrow(0, 0, 1).repeat({1, 3}) : outputs, labels);
    };
    Trainer trainer(comm, config_in(folder.file("run"), 37), 4, 1, std::move(m));
    try {
      trainer.run();
    } catch (const c10::Error& error) {
      said = error.what();
    }
  });
  return said;
}

TEST(OwnRun, AnExceptionOfTorchSaysWhereItWasAndHasNoFramesBelow) {
  for (const auto& [call, where] :
       {std::pair{3, "epoch 0, step 0: The size of tensor a (6)"}, {4, "evaluation: The size"}, {5, "epoch 1, step 0: "}}) {
    const std::string said = thrown_in(call);
    EXPECT_THAT(said, testing::StartsWith(where));
    EXPECT_THAT(said, testing::Not(HasSubstr("frame #")));
  }
}

TEST(OwnRun, AnElasticJobWantsToMakeTheModelAgain) {
  const TempDir folder;
  RankStatus status;
  const Error error =
      failure_of([&] { ElasticTrainer(elastic::ElasticWorkerOptions{}, config_in(folder.file("run"), 4), {}, status, own()); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, HasSubstr("say ModelAndData::make_model"));
}

TEST(OwnRun, APredictorSaysThatTheModelIsTheProgramsOwn) {
  const TempDir folder;
  run(1, config_in(folder.file("run"), 4));
  EXPECT_THAT(failure_of([&] { Predictor(folder.file("run")); }).what, HasSubstr("a model that its program made itself"));
}

TEST(OwnRun, RanksThatMadeDifferentModelsAreTold) {
  const TempDir folder;
  const Error error = failure_of([&] {
    collective::run_ranks(2, [&](collective::Communicator& comm) {
      ModelAndData m = own();
      if (comm.rank().value == 1) m.train = nn::dataset_of(Waves{36});
      Trainer(comm, config_in(folder.file("run"), 4), 4, 2, std::move(m));
    });
  });
  EXPECT_THAT(error.what, HasSubstr("rank 0 has training set of 37 samples of 4, rank 1 has training set of 36 samples of 4"));
}

}  // namespace
}  // namespace cohort::train
