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
  for (const char* norm : {"batch", "group"}) {
    const Model model = make_model(std::string("cnn(in=3, size=32, norm=") + norm + ")", kTestSeed);
    EXPECT_EQ(model.parameter_count(), bare + 2 * 32 * 9 + (64 - 49) * 64 * 128 + 2 * (32 + 64));
    EXPECT_THAT(logits_of(model, 2), ElementsAre(2, 10));
  }
  EXPECT_EQ(make_model("cnn(norm=batch)", kTestSeed).named_buffers().size(), 6U);
}

TEST(Cnn, Learns) {
  expect_learns("cnn", 8, 0.01);
  expect_learns("cnn(norm=group)", 8, 0.01);
}
TEST(Cnn, Repeats) { expect_repeats("cnn(size=8)"); }

}  // namespace
}  // namespace cohort::nn
