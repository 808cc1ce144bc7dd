// How the work is cut and who carries it does not change a bit of the result.
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

// A model of several tensors, an optimizer with state, clipping and norms on: whatever could depend on order does.
Lesson busy() {
  Lesson lesson{.model = "gpt(vocab=11, context=5, d=8, heads=2, layers=1)", .rule = "adamw(lr=0.01)", .steps = 3, .rows = {2, 3, 2}};
  lesson.weight_decay = 0.1;
  lesson.options.clip_norm = 0.5;
  lesson.options.norms = true;
  return lesson;
}

TEST(Bits, AreTheSameForEveryBucketSizeAndNumberOfLanes) {
  const Lesson lesson = busy();
  const auto reference = learn(lesson);
  EXPECT_EQ(reference[0].buckets, 1u);
  EXPECT_LT(reference[0].verdicts[0].clip, 1) << "clipping must happen, or it is not tested";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{700}, std::size_t{4096}, std::size_t{25_MiB}, std::size_t{0}})
    for (const int lanes : {0, 1, 2, 3}) {
      Lesson other = lesson;
      other.options.bucket = ByteSize{bytes};
      other.options.first_bucket = ByteSize{300};
      other.options.lanes = lanes;
      expect_same_bits(learn(other), reference, fmt::format("{} bytes, {} lanes:", bytes, lanes));
    }
}

TEST(Bits, AreTheSameRunAfterRunAndOnAllRanks) {
  Lesson lesson = busy();
  lesson.options.lanes = 2;
  lesson.options.bucket = ByteSize{1000};
  const auto first = learn(lesson);
  for (int run = 0; run < 3; ++run) expect_same_bits(learn(lesson), first);
  for (const auto& rank : first) {
    expect_same_bits(rank.params, first[0].params);
    expect_same_bits(rank.state, first[0].state);
  }
}

TEST(Bits, MeasuringNormsChangesNothing) {
  Lesson lesson = busy();
  const auto with = learn(lesson);
  lesson.options.norms = false;
  const auto without = learn(lesson);
  expect_same_bits(with[1].params, without[1].params);
}

TEST(Bits, EarlyUpdateEqualsThePlainStepWhenNothingGoesWrong) {
  Lesson lesson = busy();
  lesson.options.clip_norm = 0;
  const auto plain = learn(lesson);
  lesson.options.early_update = true;
  for (const int lanes : {0, 2}) {
    lesson.options.lanes = lanes;
    lesson.options.bucket = ByteSize{lanes > 0 ? std::size_t{500} : std::size_t{0}};
    expect_same_bits(learn(lesson), plain, fmt::format("{} lanes:", lanes));
  }
}

TEST(Bits, GradientsMayMoveToOtherMemoryInTheMiddleOfTraining) {
  Lesson lesson = busy();
  const auto plain = learn(lesson);
  const auto move = [](const Context& c) {
    if (c.step % 2 == 0) return;
    for (const auto& b : c.engine.buckets()) b->rebase(c.comm.allocate(b->bytes() + 4096));
  };
  for (const int lanes : {0, 2}) {
    Lesson moving = lesson;
    moving.options.lanes = lanes;
    moving.options.bucket = ByteSize{lanes > 0 ? std::size_t{500} : std::size_t{0}};
    moving.after_begin = move;  // gradients are empty
    expect_same_bits(learn(moving), plain);
    if (lanes == 0) moving.before_finish = move;  // and where they are full
    expect_same_bits(learn(moving), plain);
  }
}

TEST(Bits, ZeroGradThatDropsTheViewsDoesNoHarm) {
  Lesson lesson = busy();
  const auto plain = learn(lesson);
  lesson.after_begin = [](const Context& c) { c.model.root().zero_grad(true); };
  expect_same_bits(learn(lesson), plain);
  lesson.options.lanes = 2;
  lesson.options.bucket = ByteSize{500};
  expect_same_bits(learn(lesson), plain);
}

TEST(Bits, StateStaysWithItsParameterWhenBucketsAreReordered) {
  Lesson lesson = busy();
  lesson.steps = 1;  // the reordering comes after the first step
  const auto plain = learn(lesson);
  lesson.options.lanes = 1;
  lesson.options.bucket = ByteSize{600};
  const auto reordered = learn(lesson);
  EXPECT_GT(reordered[0].buckets, 2u);
  expect_same_bits(reordered, plain);
}

}  // namespace
}  // namespace cohort::engine
