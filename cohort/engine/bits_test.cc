// Neither buckets nor lanes change a bit of the result.
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

// A model of several tensors, an optimizer with state, clipping and norms on: whatever could depend on order does.
TrainCase busy() {
  TrainCase train_case{
      .model = "gpt(vocab=11, context=5, d=8, heads=2, layers=1)", .rule = "adamw(lr=0.01)", .steps = 3, .rows = {2, 3, 2}};
  train_case.weight_decay = 0.1;
  train_case.options.clip_norm = 0.5;
  train_case.options.norms = true;
  return train_case;
}

TEST(Bits, AreTheSameForEveryBucketSizeAndNumberOfLanes) {
  const TrainCase train_case = busy();
  const auto reference = train_ranks(train_case);
  EXPECT_EQ(reference[0].buckets, 1u);
  EXPECT_LT(reference[0].verdicts[0].clip, 1) << "clipping must happen, or it is not tested";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{700}, std::size_t{4096}, std::size_t{25_MiB}, std::size_t{0}})
    for (const int lanes : {0, 1, 2, 3}) {
      TrainCase other = train_case;
      other.options.bucket = ByteSize{bytes};
      other.options.first_bucket = ByteSize{300};
      other.options.lanes = lanes;
      expect_same_bits(train_ranks(other), reference, fmt::format("{} bytes, {} lanes:", bytes, lanes));
    }
}

TEST(Bits, AreTheSameRunAfterRunAndOnAllRanks) {
  TrainCase train_case = busy();
  train_case.options.lanes = 2;
  train_case.options.bucket = ByteSize{1000};
  const auto first = train_ranks(train_case);
  for (int run = 0; run < 3; ++run) expect_same_bits(train_ranks(train_case), first);
  for (const auto& rank : first) {
    expect_same_bits(rank.params, first[0].params);
    expect_same_bits(rank.state, first[0].state);
  }
}

TEST(Bits, MeasuringNormsChangesNothing) {
  TrainCase train_case = busy();
  const auto with = train_ranks(train_case);
  train_case.options.norms = false;
  const auto without = train_ranks(train_case);
  expect_same_bits(with[1].params, without[1].params);
}

TEST(Bits, EarlyUpdateEqualsThePlainStepWhenNothingGoesWrong) {
  TrainCase train_case = busy();
  train_case.options.clip_norm = 0;
  const auto plain = train_ranks(train_case);
  train_case.options.early_update = true;
  for (const int lanes : {0, 2}) {
    train_case.options.lanes = lanes;
    train_case.options.bucket = ByteSize{lanes > 0 ? std::size_t{500} : std::size_t{0}};
    expect_same_bits(train_ranks(train_case), plain, fmt::format("{} lanes:", lanes));
  }
}

TEST(Bits, GradientsMayMoveToOtherMemoryInTheMiddleOfTraining) {
  TrainCase train_case = busy();
  const auto plain = train_ranks(train_case);
  const auto move = [](const CallbackContext& c) {
    if (c.step % 2 == 0) return;
    for (const auto& b : c.engine.buckets()) b->rebase(c.comm.allocate(b->bytes() + 4096));
  };
  for (const int lanes : {0, 2}) {
    TrainCase moving = train_case;
    moving.options.lanes = lanes;
    moving.options.bucket = ByteSize{lanes > 0 ? std::size_t{500} : std::size_t{0}};
    moving.after_begin = move;  // gradients are empty
    expect_same_bits(train_ranks(moving), plain);
    if (lanes == 0) moving.before_finish = move;  // and where they are full
    expect_same_bits(train_ranks(moving), plain);
  }
}

TEST(Bits, ZeroGradThatDropsTheViewsDoesNoHarm) {
  TrainCase train_case = busy();
  const auto plain = train_ranks(train_case);
  train_case.after_begin = [](const CallbackContext& c) { c.model.root().zero_grad(true); };
  expect_same_bits(train_ranks(train_case), plain);
  train_case.options.lanes = 2;
  train_case.options.bucket = ByteSize{500};
  expect_same_bits(train_ranks(train_case), plain);
}

TEST(Bits, StateStaysWithItsParameterWhenBucketsAreReordered) {
  TrainCase train_case = busy();
  train_case.steps = 1;  // the reordering comes after the first step
  const auto plain = train_ranks(train_case);
  train_case.options.lanes = 1;
  train_case.options.bucket = ByteSize{600};
  const auto reordered = train_ranks(train_case);
  EXPECT_GT(reordered[0].buckets, 2u);
  expect_same_bits(reordered, plain);
}

}  // namespace
}  // namespace cohort::engine
