#include "cohort/engine/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/engine/options.h"

namespace cohort::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Buckets = std::vector<std::vector<std::size_t>>;

Buckets plan(std::vector<std::size_t> bytes, std::size_t first, std::size_t limit) {
  std::vector<PlanTensor> tensors;
  for (const auto b : bytes) tensors.push_back({b, 0});
  return plan_buckets(tensors, first, limit);
}

TEST(BucketPlan, ClosesABucketWhenTheNextTensorDoesNotFit) {
  EXPECT_EQ(plan({4, 4, 4, 4, 4}, 4, 10), (Buckets{{0}, {1, 2}, {3, 4}}));
  EXPECT_EQ(plan({4, 4, 4}, 100, 8), (Buckets{{0, 1}, {2}})) << "the first bucket is never larger than the others";
}

TEST(BucketPlan, GivesALargeTensorABucketOfItsOwn) { EXPECT_EQ(plan({2, 50, 2, 2}, 10, 10), (Buckets{{0}, {1}, {2, 3}})); }
TEST(BucketPlan, ZeroIsOneBucketForEverything) { EXPECT_EQ(plan({4, 400, 4}, 1, 0), (Buckets{{0, 1, 2}})); }
TEST(BucketPlan, OneByteIsABucketForEachTensor) { EXPECT_EQ(plan({4, 4, 4}, 1, 1), (Buckets{{0}, {1}, {2}})); }
TEST(BucketPlan, OfNothingIsNothing) { EXPECT_TRUE(plan({}, 1, 1).empty()); }

TEST(BucketPlan, KeepsKindsApart) {
  const std::vector<PlanTensor> tensors{{4, 0}, {8, 1}, {4, 0}, {8, 1}};
  EXPECT_EQ(plan_buckets(tensors, 100, 100), (Buckets{{0, 2}, {1, 3}}));
}

TEST(LaneChoice, NeedsAFreeCoreAndSomethingToCarryEarly) {
  EXPECT_EQ(choose_lanes(-1, 8, 4, 5).lanes, 1);
  EXPECT_EQ(choose_lanes(-1, 4, 4, 5).lanes, 0);
  EXPECT_EQ(choose_lanes(-1, 8, 4, 1).lanes, 0);
  EXPECT_EQ(choose_lanes(3, 1, 1, 1).lanes, 3);
  EXPECT_THAT(choose_lanes(-1, 4, 4, 5).why, HasSubstr("4 ranks on 4 cores"));
  EXPECT_EQ(choose_lanes(-1, 4, 4, 5, true).lanes, 1) << "waiting for other hosts takes no core";
  EXPECT_EQ(choose_lanes(-1, 4, 4, 1, true).lanes, 0);
}

TEST(EngineOptions, EveryFieldIsDescribed) {
  EngineOptions options;
  EXPECT_THAT(Config(options).help(), HasSubstr("early_update"));
  EXPECT_EQ(Config(options).all().size(), 12u);
}

}  // namespace
}  // namespace cohort::engine
