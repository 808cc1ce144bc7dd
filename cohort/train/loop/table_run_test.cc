// Runs on tables of one's own, from the file to predictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/collective/communicator.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/nn/zoo.h"
#include "cohort/train/loop/model_and_data.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct TableRun : testing::Test {
  TempDir dir;

  std::string file(const std::string& name, const std::string& text) {
    write_file_atomically(dir.file(name), text);
    return dir.file(name);
  }

  // Class "far" where x + y > 0.
  std::string flowers(const std::string& name, int lines, bool labelled = true) {
    std::string text = labelled ? "id,x,y,kind\n" : "y,x,id\n";
    for (int i = 0; i < lines; ++i) {
      const int x = i * 37 % 101 - 50, y = i * 53 % 97 - 48;
      text += labelled ? fmt::format("{},{},{},{}\n", i, x, y, x + y > 0 ? "far" : "close") : fmt::format("{},{},{}\n", y, x, i);
    }
    return file(name, text);
  }

  // price = 2 x - y + 1
  std::string houses(const std::string& name, int lines) {
    std::string text = "x,y,price\n";
    for (int i = 0; i < lines; ++i) {
      const double x = 0.01 * (i * 37 % 101), y = 0.01 * (i * 53 % 97);
      text += fmt::format("{},{},{}\n", x, y, 2 * x - y + 1);
    }
    return file(name, text);
  }

  TrainConfig config(const std::string& train, const std::string& test) {
    TrainConfig c;
    c.model = "mlp(hidden=16)";
    c.data.train = train;
    c.data.test = test;
    c.data.batch = 20;
    c.epochs = 0;
    c.steps = 150;
    c.checkpoint.every_epochs = 0;  // only the last
    c.threads = 1;
    c.optimizer = "adam(lr=0.02)";
    c.out = dir.file("run");
    c.observe.tensorboard = c.observe.report = false;
    return c;
  }

  RunSummary run(const TrainConfig& config) {
    std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
    const auto comm = collective::open(std::move(alone), {});
    return Trainer(*comm, config, 1, 1).run();
  }
};

}  // namespace

TEST(FitSpec, AddsWhatWasNotWrittenAndTheDataDecide) {
  const data::Form table{.input = data::Input::floats, .shape = {12}, .classes = 3},
      houses{.input = data::Input::floats, .shape = {12}, .targets = 2};
  const data::Form photos{.shape = {3, 32, 32}, .classes = 7};
  const data::Form text{.input = data::Input::tokens, .shape = {300}, .classes = 99, .vocabulary = 99, .next_tokens = true};
  EXPECT_EQ(nn::fit_spec("mlp(hidden=64)", table).spec, "mlp(hidden=64, in=12, out=3)");
  EXPECT_EQ(nn::fit_spec("mlp(hidden=64)", table).from_data, "in=12, out=3");
  EXPECT_EQ(nn::fit_spec("mlp", houses).spec, "mlp(in=12, out=2)");
  EXPECT_EQ(nn::fit_spec("mlp(in=5)", table).spec, "mlp(in=5, out=3)") << "what was written stays";
  EXPECT_EQ(nn::fit_spec("mlp", photos).spec, "mlp(in=3072, out=7)");
  EXPECT_EQ(nn::fit_spec("cnn", photos).spec, "cnn(in=3, size=32, classes=7)");
  EXPECT_EQ(nn::fit_spec("resnet18(stem=cifar)", photos).spec, "resnet18(stem=cifar, in=3, classes=7)");
  EXPECT_EQ(nn::fit_spec("gpt(d=32)", text).spec, "gpt(d=32, vocab=99, context=300)");
  EXPECT_EQ(nn::fit_spec("gpt-tiny", text).spec, "gpt-tiny");
  EXPECT_EQ(nn::fit_spec("cnn", text).spec, "cnn");
  EXPECT_EQ(nn::fit_spec("nosuch", text).spec, "nosuch");
}

TEST_F(TableRun, ClassesThatAreWordsAreLearnedAndPredictedByName) {
  const auto spec = [](const std::string& path) { return "csv(file=" + path + ", label=kind, ignore=id)"; };
  const TrainConfig c = config(spec(flowers("train.csv", 400)), spec(flowers("test.csv", 90)));
  const RunSummary summary = run(c);
  EXPECT_GT(summary.test.metric("accuracy"), 0.9);
  const Predictor predictor(dir.file("run"));
  EXPECT_EQ(predictor.model_spec(), "mlp(hidden=16, in=2, out=2)");
  EXPECT_EQ(predictor.score(c.data.test, 0).accuracy(), summary.test.metric("accuracy"));
  std::vector<std::string> with_labels, without;
  const auto labelled = predictor.open(flowers("rows.csv", 50));
  EXPECT_EQ(predictor.predict(*labelled, {}, [&](const Prediction& p) { with_labels.push_back(p.guesses.at(0).name); }).samples, 50);
  const auto rows = predictor.open(flowers("bare.csv", 50, false));  // columns in another order
  const Score score = predictor.predict(*rows, {}, [&](const Prediction& p) {
    without.push_back(p.guesses.at(0).name);
    EXPECT_EQ(p.place, std::to_string(without.size()));
    EXPECT_TRUE(p.label.empty());
  });
  EXPECT_EQ(score.samples, 0);
  EXPECT_EQ(with_labels, without);
  EXPECT_THAT(without, AllOf(testing::Contains("far"), testing::Contains("close")));
  EXPECT_THAT(failure_of([&] { predictor.open(file("new.csv", "id,x,y,kind\n1,2,3,zebra\n")); }).what, HasSubstr("zebra"));
  EXPECT_THAT(failure_of([&] { predictor.open(dir.file(".")); }).what, HasSubstr("not folders of pictures"));
}

TEST_F(TableRun, NumbersAreLearnedWithTheirErrorForAccuracy) {
  const auto spec = [](const std::string& path) { return "csv(file=" + path + ", target=price)"; };
  for (const std::string loss : {"auto", "mae", "huber(delta=0.5)"}) {
    TrainConfig c = config(spec(houses("train.csv", 200)), spec(houses("test.csv", 60)));
    c.loss = loss;
    c.out = dir.file("run_" + loss);
    const RunSummary summary = run(c);
    const std::string measure = loss == "mae" ? "mae" : "rmse";
    EXPECT_LT(summary.test.metric(measure), 0.2) << loss;  // prices are 0.1 to 3
    const Predictor predictor(c.out);
    EXPECT_TRUE(predictor.regression());
    EXPECT_THAT(predictor.target_names(), ElementsAre("price"));
    const Score score = predictor.score(c.data.test, 0);
    EXPECT_EQ(score.measure, measure);
    EXPECT_NEAR(score.error, summary.test.metric(measure), 1e-6);
    const auto rows = predictor.open(file("rows.csv", "y,x\n0.5,0.5\n"));
    predictor.predict(*rows, {}, [&](const Prediction& p) { EXPECT_NEAR(p.values.at(0), 1.5, 0.5); });
  }
}

TEST_F(TableRun, WhatDoesNotGoTogetherIsRefusedByName) {
  const std::string numbers = "csv(file=" + houses("h.csv", 40) + ", target=price)";
  const auto refused = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig c = config(numbers, "");
    change(c);
    return failure_of([&] { load_model_and_data(c); }).what;
  };
  EXPECT_THAT(refused([](TrainConfig& c) { c.loss = "cross_entropy"; }), HasSubstr("loss=cross_entropy is for classes"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.optim.label_smoothing = 0.1; }), HasSubstr("label_smoothing"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.model = "mlp(out=3)"; }),
              HasSubstr("3 outputs for a sample, the data set has 1 float target"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.model = "mlp(in=7)"; }),
              HasSubstr("takes samples of 7, the data set has 2: say in=2 in place of in=7, or leave it out: it follows from the data"));
  EXPECT_THAT(refused([](TrainConfig& c) { c.data.transforms = "flip"; }), HasSubstr("'flip' is for images"));
  const std::string bare = "csv(file=" + file("bare.csv", "x,y\n1,2\n") + ", target=price)";
  EXPECT_THAT(refused([&](TrainConfig& c) { c.data.test = bare; }), HasSubstr("has no column with its labels"));
}

}  // namespace cohort::train
