// Gradients in 16 bits on the wire, through the whole step.
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

Lesson lesson_with(Precision wire, WireSum sum) {
  Lesson lesson{.rule = "adam(lr=0.01)", .steps = 4, .rows = {3, 4, 3}};
  lesson.options.wire = wire;
  lesson.options.wire_sum = sum;
  return lesson;
}

TEST(Wire, OfSixteenBitsGivesTheSameBitsForAnyLanesAndBucketsOnEveryRank) {
  for (const auto wire : {Precision::bf16, Precision::fp16})
    for (const auto sum : {WireSum::wire, WireSum::fp32}) {
      Lesson lesson = lesson_with(wire, sum);
      const auto plain = learn(lesson);
      for (std::size_t r = 1; r < plain.size(); ++r) expect_same_bits(plain[r].params, plain[0].params, "rank");
      lesson.options.bucket = lesson.options.first_bucket = ByteSize{100};
      expect_same_bits(learn(lesson), plain, "small buckets");
      lesson.options.lanes = 2;
      expect_same_bits(learn(lesson), plain, "two lanes");
    }
}

TEST(Wire, OfSixteenBitsIsNearFp32AndNotIt) {
  Lesson lesson = lesson_with(Precision::fp32, WireSum::fp32);
  lesson.rule = "sgd(lr=0.1)";
  const auto wide = learn(lesson);
  lesson.options.wire = Precision::bf16;
  const auto narrow = learn(lesson);
  expect_near(narrow[0].params, wide[0].params, 0.01);
  EXPECT_FALSE(at::equal(narrow[0].params[0].second, wide[0].params[0].second));
}

// A gradient that fp32 holds and fp16 does not: all ranks leave the step out, as with any other that is not finite.
TEST(Wire, WhatFp16CannotHoldCallsTheStepOff) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({3}).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.lanes = 0, .wire = Precision::fp16}, optim::make("sgd(lr=1)"));
    for (const double factor : {1.0, 1e6}) {
      engine.begin({.step = 1, .lr = 1});
      (w.sum() * (comm.rank() == Rank{0} ? factor : 1.0)).backward();
      EXPECT_EQ(engine.finish().committed, factor == 1.0);
    }
    EXPECT_EQ(w[0].item<float>(), 0);
  });
}

}  // namespace
}  // namespace cohort::engine
