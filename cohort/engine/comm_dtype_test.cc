// Gradients sent in 16 bits, through the whole step.
#include "cohort/engine/testing.h"

namespace cohort::engine {
namespace {

TrainCase case_with(Precision dtype, CommSumDtype sum) {
  TrainCase train_case{.rule = "adam(lr=0.01)", .steps = 4, .rows = {3, 4, 3}};
  train_case.options.comm_dtype = dtype;
  train_case.options.comm_sum_dtype = sum;
  return train_case;
}

TEST(CommDtype, OfSixteenBitsGivesTheSameBitsForAnyLanesAndBucketsOnEveryRank) {
  for (const auto dtype : {Precision::bf16, Precision::fp16})
    for (const auto sum : {CommSumDtype::comm, CommSumDtype::fp32}) {
      TrainCase train_case = case_with(dtype, sum);
      const auto plain = train_ranks(train_case);
      for (std::size_t r = 1; r < plain.size(); ++r) expect_same_bits(plain[r].params, plain[0].params, "rank");
      train_case.options.bucket = train_case.options.first_bucket = ByteSize{100};
      expect_same_bits(train_ranks(train_case), plain, "small buckets");
      train_case.options.lanes = 2;
      expect_same_bits(train_ranks(train_case), plain, "two lanes");
    }
}

TEST(CommDtype, OfSixteenBitsIsNearFp32AndNotIt) {
  TrainCase train_case = case_with(Precision::fp32, CommSumDtype::fp32);
  train_case.rule = "sgd(lr=0.1)";
  const auto fp32 = train_ranks(train_case);
  train_case.options.comm_dtype = Precision::bf16;
  const auto bf16 = train_ranks(train_case);
  expect_near(bf16[0].params, fp32[0].params, 0.01);
  EXPECT_FALSE(at::equal(bf16[0].params[0].second, fp32[0].params[0].second));
}

// A gradient that fp32 holds and fp16 does not: all ranks skip the step, as with any other that is not finite.
TEST(CommDtype, WhatFp16CannotHoldSkipsTheStep) {
  collective::run_ranks(2, [](collective::Communicator& comm) {
    const at::Tensor w = at::ones({3}).requires_grad_(true);
    Engine engine(comm, {{"w", w}}, {.lanes = 0, .comm_dtype = Precision::fp16}, optim::make("sgd(lr=1)"));
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
