#include "cohort/nn/zoo.h"

#include <ATen/ops/rand.h>

#include <atomic>
#include <thread>

#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::HasSubstr;

TEST(Zoo, UnknownModelsAndParametersAreNamed) {
  EXPECT_THAT(failure_of([] { make_model("resnet19", 0); }).what, HasSubstr("resnet18"));
  EXPECT_THAT(failure_of([] { make_model("cnn(depth=3)", 0); }).what, HasSubstr("depth"));
  EXPECT_THAT(failure_of([] { make_model("cnn(norm=grup)", 0); }).what, HasSubstr("group"));
  EXPECT_EQ(failure_of([] { make_model("gpt(layers=0)", 0); }).kind, Kind::usage);
}

TEST(Zoo, HelpShowsEveryModelAndItsParameters) {
  const std::string help = zoo_help();
  for (const Architecture* row : architectures()) {
    EXPECT_THAT(help, HasSubstr(std::string(row->name)));
    for (const SpecParam& param : row->params()) EXPECT_THAT(help, HasSubstr(param.name));
  }
}

// Ranks are threads in many tests; a draw from torch's global generator must not change a model.
TEST(Zoo, FirstValuesDoNotDependOnOtherThreads) {
  const NamedTensors alone = make_model("cnn", kTestSeed).named_parameters();
  std::atomic<bool> stop{false};
  std::thread noise([&] {
    while (!stop) at::rand({100});
  });
  const NamedTensors crowded = make_model("cnn", kTestSeed).named_parameters();
  stop = true;
  noise.join();
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i].second, crowded[i].second)) << alone[i].first;
}

TEST(Zoo, ParametersOfOneSizeDrawDifferentValues) {
  const NamedTensors list = make_model("mlp(in=8, hidden=8x8)", kTestSeed).named_parameters();
  EXPECT_FALSE(at::equal(list[0].second, list[2].second));
}

TEST(Zoo, ExamplesRepeatAndStayInTheVocabulary) {
  const Model model = make_model("gpt(vocab=11, context=64)", kTestSeed);
  const at::Tensor ids = model.example(8, 3);
  EXPECT_TRUE(at::equal(ids, model.example(8, 3)));
  EXPECT_FALSE(at::equal(ids, model.example(8, 4)));
  EXPECT_EQ(ids.max().item<std::int64_t>(), 10);
  EXPECT_EQ(ids.min().item<std::int64_t>(), 0);
}

}  // namespace
}  // namespace cohort::nn
