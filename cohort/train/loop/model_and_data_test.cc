// Labels must mean the same classes in training, evaluation, a resumed run and predict.
#include "cohort/train/loop/model_and_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/data/png_testing.h"
#include "cohort/net/transport/loopback.h"
#include "cohort/train/loop/predictor.h"
#include "cohort/train/loop/trainer.h"

namespace cohort::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Names = std::vector<std::string>;

struct NamedClasses : testing::Test {
  TempDir dir;

  // A data set of this name with two pictures of 1 x 1 in each class.
  std::string folder(const std::string& name, const Names& classes) const {
    for (const auto& one : classes) {
      const std::string path = dir.file(name + "/" + one);
      std::filesystem::create_directories(path);
      for (const std::uint8_t i : {1, 2}) write_file_atomically(fmt::format("{}/{}.png", path, i), data::png_file(1, 1, {i, 100, 200}));
    }
    return fmt::format("folder(size=1x1, dir={})", dir.file(name));
  }

  TrainConfig config(const std::string& train, const std::string& test = "") const {
    TrainConfig c;
    c.model = "mlp(in=3, hidden=2, out=5)";
    c.data.train = train;
    c.data.test = test;
    c.data.batch = 2;
    c.epochs = 1;
    c.observe.tensorboard = c.observe.report = false;
    c.threads = 1;
    c.out = dir.file("run");
    return c;
  }
};

void train_alone(const TrainConfig& config) {
  std::shared_ptr<net::PeerLinks> alone = std::move(net::loopback_world(1).front());
  const auto comm = collective::open(std::move(alone), {});
  Trainer(*comm, config, 1, 1).run();
}

TEST_F(NamedClasses, ATestSetWithOtherClassesIsRefusedWithTheFirstDifferenceAndBothPaths) {
  const std::string train = folder("train", {"ant", "cat", "dog"}), test = folder("test", {"ant", "cow", "dog"});
  const Error error = failure_of([&] { load_model_and_data(config(train, test)); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_THAT(error.what, AllOf(HasSubstr("class 1 is 'cat' in data.train '" + train + "' but 'cow' in data.test '" + test + "'"),
                                HasSubstr("give both sets the same classes")));
  const std::string larger = folder("larger", {"ant", "cat", "dog", "eel"});
  EXPECT_THAT(failure_of([&] { load_model_and_data(config(train, larger)); }).what, HasSubstr("class 3 is 'eel' in data.test"));
}

TEST_F(NamedClasses, ATestSetWithTheSameLabelsOrWithoutNamesIsTaken) {
  const std::string train = folder("train", {"ant", "cat", "dog"});
  EXPECT_NO_THROW(load_model_and_data(config(train, folder("same", {"ant", "cat", "dog"}))));
  EXPECT_NO_THROW(load_model_and_data(config(train, folder("without_the_last", {"ant", "cat"}))));
  EXPECT_NO_THROW(load_model_and_data(config(train, "synthetic(shape=3x1x1, classes=3, samples=10)")));
}

TEST_F(NamedClasses, ARunIsResumedAndPredictsWithTheClassesOfItsCheckpointOnly) {
  const std::string train = folder("train", {"ant", "cat", "dog"});
  train_alone(config(train));
  const std::string checkpoint = dir.file("run/checkpoints/step-00000003");
  const std::string other = folder("other", {"ant", "bee", "cat", "dog"}), fewer = folder("fewer", {"ant", "cat"});
  for (const auto& [set, difference] :
       {std::pair{other, "class 1 is 'cat' in " + checkpoint + " but 'bee' in data.train '" + other + "'"},
        std::pair{fewer, "class 2 is 'dog' in " + checkpoint + " but missing in data.train '" + fewer + "'"}}) {
    const Error error = failure_of([&, data = set] { train_alone(config(data)); });
    EXPECT_EQ(error.kind, Kind::usage);
    EXPECT_THAT(error.what, AllOf(HasSubstr(difference), HasSubstr("checkpoint.resume=never")));
  }
  EXPECT_NO_THROW(train_alone(config(train)));
  const Predictor predictor(dir.file("run"));
  EXPECT_EQ(predictor.score(train, 0).samples, 6);
  EXPECT_EQ(predictor.score(fewer, 0).samples, 4);
  EXPECT_THAT(failure_of([&] { predictor.score(other, 0); }).what,
              HasSubstr("class 1 is 'cat' in " + checkpoint + " but 'bee' in '" + other));
}

TEST_F(NamedClasses, ATableOfTextsToTestHasTheClassesOfTraining) {
  write_file_atomically(dir.file("train.csv"), "label,text\nham,a\nspam,b\neggs,c\nham,d\nspam,e\neggs,f\n");
  write_file_atomically(dir.file("test.csv"), "label,text\nspam,b\nham,a\n");  // without eggs, the first in alphabetical order
  write_file_atomically(dir.file("other.csv"), "label,text\nspam,b\ntofu,a\n");
  TrainConfig c =
      config("csv_text(context=8, file=" + dir.file("train.csv") + ")", "csv_text(context=8, file=" + dir.file("test.csv") + ")");
  c.model = "transformer(d=8, heads=2, layers=1)";
  const ModelAndData m = load_model_and_data(c);
  data::Scratch scratch;
  EXPECT_EQ(m.train->size(), 6);
  EXPECT_THAT(m.train->form().names, testing::ElementsAre("eggs", "ham", "spam"));
  EXPECT_EQ(m.test->sample(0, scratch).label, 2);
  EXPECT_EQ(m.test->sample(1, scratch).label, 1);
  c.data.test = "csv_text(context=8, file=" + dir.file("other.csv") + ")";
  EXPECT_THAT(failure_of([&] { load_model_and_data(c); }).what, HasSubstr("'tofu'"));
}

TEST_F(NamedClasses, FirstValuesAreReadNoMoreOnceThereIsACheckpoint) {
  TrainConfig c = config(folder("train", {"a", "b"}));
  c.out = dir.file("run");
  c.pretrained = dir.file("gone.safetensors");
  EXPECT_THAT(failure_of([&] { load_model_and_data(c); }).what, HasSubstr("gone.safetensors"));
  std::filesystem::create_directories(c.out + "/checkpoints/step-00000001");
  EXPECT_NO_THROW(load_model_and_data(c));
  c.checkpoint.resume = "never";
  EXPECT_THAT(failure_of([&] { load_model_and_data(c); }).what, HasSubstr("gone.safetensors"));
}

}  // namespace
}  // namespace cohort::train
