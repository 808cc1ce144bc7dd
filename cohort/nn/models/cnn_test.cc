#include <fmt/format.h>

#include "cohort/base/failure_of.h"
#include "cohort/nn/models/testing.h"

namespace cohort::nn {
namespace {

using testing::ElementsAre;

TEST(Cnn, HasTheLayersOfTheExamples) {
  const Model model = make_model("cnn", kTestSeed);
  EXPECT_EQ(model.parameter_count(), 320 + 18496 + (3136 * 128 + 128) + 1290);
  EXPECT_THAT(logits_of(model, 3), ElementsAre(3, 10));
  EXPECT_TRUE(model.named_buffers().empty());
}

TEST(Cnn, NormsAreAChoice) {
  const std::int64_t bare = make_model("cnn", kTestSeed).parameter_count();
  for (const char* norm : {"batch", "group", "group(groups=8)", "layer", "instance", "ghost", "ghost(size=4)"}) {
    const Model model = make_model(std::string("cnn(in=3, size=32, norm=") + norm + ")", kTestSeed);
    EXPECT_EQ(model.parameter_count(), bare + 2 * 32 * 9 + (64 - 49) * 64 * 128 + 2 * (32 + 64));
    EXPECT_THAT(logits_of(model, 2), ElementsAre(2, 10));
  }
  EXPECT_EQ(make_model("cnn(norm=batch)", kTestSeed).named_buffers().size(), 6U);
}

TEST(Cnn, Learns) {
  expect_learns("cnn", 8, 0.01);
  for (const char* norm : {"group", "layer", "instance", "ghost(size=4)"}) expect_learns(fmt::format("cnn(norm={})", norm), 8, 0.01);
}
// Whatever else is in the batch; a batch norm's is another.
TEST(Cnn, GroupsNormaliseEverySampleForItself) {
  at::set_num_threads(1);
  for (const auto& [norm, alone] : {std::pair{"group(groups=4)", true}, {"layer", true}, {"instance", true}, {"batch", false}}) {
    Model model = make_model(fmt::format("cnn(size=8, norm={})", norm), kTestSeed);
    model.train(true);
    const at::NoGradGuard no_grad;
    const at::Tensor x = model.example(3), y = model.forward(x), twice = model.forward(at::cat({x.narrow(0, 0, 1), x.narrow(0, 0, 1) + 3}));
    EXPECT_EQ(at::allclose(y[0], twice[0], 1e-6, 1e-6), alone) << norm;
  }
}

TEST(Cnn, RefusesWhatNoNormHas) {
  EXPECT_THAT(failure_of([] { make_model("cnn(norm=ghost(groups=3))", 0); }).what, testing::HasSubstr("ghost has size"));
  EXPECT_THAT(failure_of([] { make_model("cnn(norm=group(groups=0))", 0); }).what, testing::HasSubstr("1 or more"));
  EXPECT_THAT(failure_of([] { make_model("resnet18(norm=none)", 0); }).what, testing::HasSubstr("batch"));
}
TEST(Cnn, Repeats) { expect_repeats("cnn(size=8)"); }

}  // namespace
}  // namespace cohort::nn
