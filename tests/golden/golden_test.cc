// What a change of the engine, of strategies, of collectives or of optimizers must leave as it is: golden.txt has it of every case, one
// line each. After a change that is meant to change it: COHORT_GOLDEN_WRITE=1 golden_test rewrites the file, and the changelog says why.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/golden/lines.h"
#include "tests/golden/run.h"

namespace cohort::golden {
namespace {

constexpr ByteSize kSmall{4096};

engine::EngineOptions in(Precision comm, engine::CommSumDtype sum) {
  return {.bucket = kSmall, .lanes = 0, .comm_dtype = comm, .comm_sum_dtype = sum};
}

std::vector<Case> cases() {
  const engine::EngineOptions plain{.first_bucket = ByteSize{300}, .bucket = kSmall, .lanes = 0};
  engine::EngineOptions clipped = plain, early = plain, lanes = plain;
  clipped.clip_norm = 3;
  clipped.norms = true;
  early.early_update = true;
  lanes.lanes = 2;
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4}) all.push_back({.name = fmt::format("all_reduce,{}", ranks), .ranks = ranks, .options = plain});
  for (const std::string rule :
       {"sgd(lr=0.1, momentum=0.9)", "adam(lr=0.01)", "rmsprop(lr=0.01)", "adagrad(lr=0.01)", "lars(lr=1)", "lamb(lr=0.01)"})
    all.push_back({.name = rule.substr(0, rule.find('(')), .rule = rule, .ranks = 3, .options = plain});
  all.push_back({.name = "sum", .strategy = "all_reduce(op=sum)", .ranks = 3, .options = plain});
  all.push_back({.name = "clipped", .ranks = 3, .options = clipped});
  all.push_back({.name = "early_update", .ranks = 3, .options = early});
  all.push_back({.name = "lanes", .ranks = 3, .options = lanes});
  all.push_back({.name = "accumulated", .ranks = 3, .backwards = 2, .options = plain});
  using engine::CommSumDtype;
  for (const auto comm : {Precision::bf16, Precision::fp16})
    for (const auto sum : {CommSumDtype::comm, CommSumDtype::fp32})
      all.push_back({.name = fmt::format("{},{}", comm == Precision::bf16 ? "bf16" : "fp16", sum == CommSumDtype::comm ? "comm" : "fp32"),
                     .ranks = 3,
                     .options = in(comm, sum)});
  for (const int stage : {1, 2, 3})
    for (const bool buddy : {false, true})
      for (const int ranks : {2, 3}) {
        const auto strategy = fmt::format("zero(stage={}, buddy={})", stage, buddy);
        all.push_back({.name = fmt::format("zero{}{},{}", stage, buddy ? ",buddy" : "", ranks),
                       .strategy = strategy,
                       .ranks = ranks,
                       .options = plain});
      }
  for (const int stage : {1, 2, 3}) {
    const auto strategy = fmt::format("zero(stage={})", stage);
    all.push_back({.name = fmt::format("zero{},clipped", stage), .strategy = strategy, .ranks = 3, .options = clipped});
    all.push_back({.name = fmt::format("zero{},lanes", stage), .strategy = strategy, .ranks = 3, .options = lanes});
    all.push_back({.name = fmt::format("zero{},accumulated", stage), .strategy = strategy, .ranks = 3, .backwards = 2, .options = plain});
  }
  return all;
}

// With lanes what is in flight, and who asks for memory, depends on who is quicker.
std::string text_of(const Case& one, const TrainedRun& run) {
  const bool still = one.options.lanes == 0;
  return fmt::format("parameters={} shards={} norms={} moved={} held={}/{}/{} in_flight={}", run.parameters, run.shards, run.norms,
                     run.moved, run.held[0], run.held[1], run.held[2], still ? std::to_string(run.in_flight) : "any");
}

class Golden : public testing::TestWithParam<Case> {};
class GoldenAllocations : public Golden {};  // ranks that wait for each other: a busy machine may keep one from running

std::vector<Case> cases_without_lanes() {
  auto all = cases();
  std::erase_if(all, [](const Case& one) { return one.options.lanes > 0; });
  return all;
}

TEST_P(Golden, RunKeepsItsBitsBytesAndMemory) {
  const TrainedRun run = train(GetParam());
  EXPECT_EQ(text_of(GetParam(), run), golden_line("run " + GetParam().name, text_of(GetParam(), run)));
}

// Fewer are welcome. A rank that waits for another asks for some more: of many steps the one counts in which it did not wait.
TEST_P(GoldenAllocations, StepAsksForMemoryNoMoreOften) {
  Case many = GetParam();
  many.steps = 100;
  const auto asked = train(many).allocations;
  EXPECT_LE(asked, std::stoull(golden_line("allocations " + GetParam().name, std::to_string(asked))));
}

std::string name_of(const testing::TestParamInfo<Case>& one) {
  std::string name = one.param.name;
  std::ranges::replace(name, ',', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Of, Golden, testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, GoldenAllocations, testing::ValuesIn(cases_without_lanes()), name_of);

// Strategies, buckets and stages that promise it have the bits of each other, whatever golden.txt says.
TEST(GoldenFile, HasOneLineOfBitsForAllThatPromiseTheSame) {
  const auto bits = [](const std::string& name) {
    return golden_line("run " + name, "").substr(0, std::string("parameters=0123456789abcdef").size());
  };
  for (const std::string same : {"zero1,3", "zero2,3", "zero3,3", "zero1,buddy,3", "zero2,buddy,3", "zero3,buddy,3", "lanes",
                                 "early_update", "zero1,lanes", "zero2,lanes", "zero3,lanes"})
    EXPECT_EQ(bits(same), bits("all_reduce,3")) << same;
  for (const std::string same : {"zero1,clipped", "zero2,clipped", "zero3,clipped"}) EXPECT_EQ(bits(same), bits("clipped")) << same;
  EXPECT_EQ(bits("zero1,accumulated"), bits("accumulated"));
  EXPECT_EQ(bits("zero2,accumulated"), bits("zero3,accumulated"));
  EXPECT_NE(bits("clipped"), bits("all_reduce,3")) << "nothing was clipped";
}

}  // namespace
}  // namespace cohort::golden
