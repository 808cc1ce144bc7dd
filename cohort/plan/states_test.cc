// The tables of the ZeRO paper (arXiv:1910.02054) and what other systems count.
#include "cohort/plan/states.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/failure_of.h"

namespace cohort::plan {
namespace {

constexpr double kGB = 1e9;
constexpr double kGiB = 1024.0 * 1024 * 1024;

// Gigabytes of model states, stages 1 to 3.
struct Row {
  int ranks;
  double stage1, stage2, stage3;
};

void expect_table(double parameters, const std::vector<Row>& rows, double tolerance) {
  for (const Row& row : rows) {
    EXPECT_NEAR(state_bytes(kMixedAdam, 1, row.ranks, parameters).total() / kGB, row.stage1, tolerance) << row.ranks << " ranks";
    EXPECT_NEAR(state_bytes(kMixedAdam, 2, row.ranks, parameters).total() / kGB, row.stage2, tolerance) << row.ranks << " ranks";
    EXPECT_NEAR(state_bytes(kMixedAdam, 3, row.ranks, parameters).total() / kGB, row.stage3, tolerance) << row.ranks << " ranks";
  }
}

TEST(States, Table1OfZeroFor7Point5Billion) {
  expect_table(7.5e9,
               {{1, 120, 120, 120},
                {4, 52.5, 41.25, 30},
                {16, 35.625, 21.5625, 7.5},
                {64, 31.406, 16.641, 1.875},
                {256, 30.352, 15.410, 0.469},
                {1024, 30.088, 15.103, 0.117}},
               0.0005);
}

TEST(States, Table1RoundedAsThePaperRoundsIt) {  // the 7.5B column is rounded to three digits
  const auto rounded = [](int stage, int ranks, double unit) {
    return std::round(state_bytes(kMixedAdam, stage, ranks, 7.5e9).total() / kGB / unit) * unit;
  };
  EXPECT_NEAR(rounded(2, 4, 0.1), 41.3, 1e-9);
  EXPECT_NEAR(rounded(1, 16, 0.1), 35.6, 1e-9);
  EXPECT_NEAR(rounded(2, 16, 0.1), 21.6, 1e-9);
  EXPECT_NEAR(rounded(1, 64, 0.1), 31.4, 1e-9);
  EXPECT_NEAR(rounded(2, 64, 0.1), 16.6, 1e-9);
  EXPECT_NEAR(rounded(3, 64, 0.01), 1.88, 1e-9);
  EXPECT_NEAR(rounded(1, 256, 0.1), 30.4, 1e-9);
  EXPECT_NEAR(rounded(3, 256, 0.01), 0.47, 1e-9);
  EXPECT_NEAR(rounded(1, 1024, 0.1), 30.1, 1e-9);
  EXPECT_NEAR(rounded(3, 1024, 0.01), 0.12, 1e-9);
}

TEST(States, Table1OfZeroFor128Billion) {
  expect_table(
      128e9,
      {{1, 2048, 2048, 2048}, {4, 896, 704, 512}, {16, 608, 368, 128}, {64, 536, 284, 32}, {256, 518, 263, 8}, {1024, 513.5, 257.75, 2}},
      1e-6);
}

TEST(States, Table1OfZeroForATrillion) {
  expect_table(1e12,
               {{1, 16000, 16000, 16000},
                {4, 7000, 5500, 4000},
                {16, 4750, 2875, 1000},
                {64, 4187.5, 2218.75, 250},
                {256, 4046.875, 2054.6875, 62.5},
                {1024, 4011.71875, 2013.671875, 15.625}},
               1e-6);
}

TEST(States, Table2OfZeroTheLargestModelOn32Gigabytes) {
  const auto billions = [](int stage) { return largest_model(kMixedAdam, stage, 64, 32 * kGB) / 1e9; };
  EXPECT_NEAR(billions(0), 2.000, 0.0005);
  EXPECT_NEAR(billions(1), 7.642, 0.0005);
  EXPECT_NEAR(billions(2), 14.423, 0.0005);
  EXPECT_NEAR(billions(3), 128, 0.0005);
  const auto floored = [&](int stage, double unit) { return std::floor(billions(stage) / unit) * unit; };
  EXPECT_NEAR(floored(1, 0.1), 7.6, 1e-9);  // the paper's digits, and times 16 with as many model-parallel ranks
  EXPECT_NEAR(floored(2, 0.1), 14.4, 1e-9);
  EXPECT_NEAR(16 * floored(0, 0.1), 32, 1e-9);
  EXPECT_NEAR(16 * floored(1, 0.1), 121.6, 1e-9);
  EXPECT_NEAR(16 * floored(2, 0.1), 230.4, 1e-9);
  EXPECT_NEAR(16 * billions(3), 2048, 1e-6);  // "2T"
}

TEST(States, Fp32AdamIsWhatThisEngineKeeps) {
  for (const int n : {1, 2, 4, 8}) {
    EXPECT_DOUBLE_EQ(state_bytes_each(kFp32Adam, 0, n), 16);
    EXPECT_DOUBLE_EQ(state_bytes_each(kFp32Adam, 1, n), 8 + 8.0 / n);
    EXPECT_DOUBLE_EQ(state_bytes_each(kFp32Adam, 2, n), 4 + 12.0 / n);
    EXPECT_DOUBLE_EQ(state_bytes_each(kFp32Adam, 3, n), 16.0 / n);
  }
}

TEST(States, MegatronsDistributedOptimizer) {
  for (const int d : {2, 8, 64}) {
    EXPECT_DOUBLE_EQ(state_bytes_each(kMegatronFp16, 0, d), 20);
    EXPECT_DOUBLE_EQ(state_bytes_each(kMegatronFp16, 1, d), 4 + 16.0 / d);
    EXPECT_DOUBLE_EQ(state_bytes_each(kMegatronBf16, 0, d), 18);
    EXPECT_DOUBLE_EQ(state_bytes_each(kMegatronBf16, 1, d), 6 + 12.0 / d);
    EXPECT_DOUBLE_EQ(state_bytes_each(kFp32Adam, 1, d), 8 + 8.0 / d);
  }
}

TEST(States, OneQuestionThreeAnswers) {  // T5-3B on 8 GPUs at stage 2
  constexpr double kT5 = 2851e6;
  EXPECT_NEAR(state_bytes(kMixedAdam, 2, 8, kT5).total() / kGiB, 9.96, 0.005);
  EXPECT_NEAR(state_bytes(kDeepSpeed, 2, 8, kT5).total() / kGiB, 11.28, 0.005);
  EXPECT_NEAR(state_bytes(kDeepSpeed, 1, 8, kT5).total() / kGiB, 15.93, 0.005);  // what its manual still says of stage 2: 4 + 16/N
}

TEST(States, DeepSpeedsEstimateOfStage3) {
  constexpr double kT5 = 2851e6, kLargest = 32e6;
  EXPECT_NEAR(deepspeed_stage3_bytes(kT5, kLargest, 8, Offload::everything) / kGiB, 0.12, 0.005);
  EXPECT_NEAR(deepspeed_stage3_bytes(kT5, kLargest, 8, Offload::optimizer) / kGiB, 0.78, 0.005);
  EXPECT_NEAR(deepspeed_stage3_bytes(kT5, kLargest, 8, Offload::none) / kGiB, 6.09, 0.005);
}

TEST(States, Gpt2Needs24GigabytesOfStates) { EXPECT_NEAR(state_bytes(kMixedAdam, 0, 1, 1.5e9).total() / kGB, 24, 1e-9); }

TEST(States, WhatMovesIsTwoOrThreeTimesTheModel) {
  EXPECT_DOUBLE_EQ(moved_each(0, 1), 0);
  for (const int stage : {0, 1, 2}) EXPECT_DOUBLE_EQ(moved_each(stage, 4), 1.5);
  EXPECT_DOUBLE_EQ(moved_each(3, 4), 2.25);
}

TEST(States, AStageThatDoesNotExistIsRefused) {
  EXPECT_EQ(failure_of([] { state_bytes_each(kFp32Adam, 4, 2); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([] { state_bytes_each(kFp32Adam, 1, 0); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::plan
