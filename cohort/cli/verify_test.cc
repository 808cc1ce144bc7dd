#include <gmock/gmock.h>

#include <cmath>

#include "cohort/base/failure_of.h"
#include "cohort/cli/verify_compare.h"
#include "cohort/cli/verify_options.h"

namespace cohort::cli {
namespace {

using checkpoint::Dtype;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Verify, SpecsAreSplitOutsideOfTheirBrackets) {
  EXPECT_THAT(split_specs("all_reduce,zero(stage=2, op=sum) , all_reduce(op=sum)"),
              ElementsAre("all_reduce", "zero(stage=2, op=sum)", "all_reduce(op=sum)"));
  EXPECT_THAT(failure_of([] { split_specs(" , "); }).what, HasSubstr("names no strategy"));
}

TEST(Verify, AllRunsShareOneBatch) {
  VerifyOptions o;
  TrainConfig config;
  config.data.batch = 8;
  o.ranks = {1, 2, 3};
  EXPECT_EQ(shared_batch(o, config), 48);
  config.data.accumulate = 2;
  EXPECT_EQ(shared_batch(o, config), 96);
  EXPECT_EQ(settings_of_run(o, config, 3, "all_reduce").front(), "data.batch=16") << "3 ranks, twice each";
  o.global_batch = 32;
  EXPECT_THAT(failure_of([&] { shared_batch(o, config); }).what, HasSubstr("among 3 ranks that accumulate 2 times: --global-batch 96"));
}

TEST(Verify, TheBatchIsSharedOutAmongTheDpPlacesOfAMesh) {
  VerifyOptions o;
  TrainConfig config;
  config.data.batch = 8;
  config.mesh = "dp,tp=2";
  o.ranks = {1, 2, 4};
  EXPECT_EQ(shared_batch(o, config), 16) << "4 ranks are two places";
  EXPECT_EQ(settings_of_run(o, config, 4, "all_reduce").front(), "data.batch=8");
  EXPECT_EQ(settings_of_run(o, config, 2, "all_reduce").front(), "data.batch=16");
  EXPECT_THAT(settings_of_run(o, config, 4, "all_reduce"), Contains("mesh=dp,tp=2"));
  EXPECT_THAT(settings_of_run(o, config, 1, "all_reduce"), Contains("mesh="));
  o.ranks = {3};
  EXPECT_THAT(failure_of([&] { shared_batch(o, config); }).what, HasSubstr("a multiple of it, and the job has 3"));
}

TEST(Verify, UlpsCountTheNumbersBetween) {
  EXPECT_EQ(ulps_between(1, std::nextafterf(1, 2), Dtype::f32), 1);
  EXPECT_EQ(ulps_between(1, std::nextafterf(1, 2), Dtype::f64), std::ldexp(1, 29));
  EXPECT_EQ(ulps_between(-1e-45, 1e-45, Dtype::f32), 2) << "over zero";
  EXPECT_EQ(ulps_between(0.0, -0.0, Dtype::f64), 0);
  EXPECT_EQ(ulps_between(NAN, NAN, Dtype::f32), 0);
  EXPECT_TRUE(std::isinf(ulps_between(1, NAN, Dtype::f32)));
}

TEST(Verify, AnIndexIsOfTheTensorsShape) {
  EXPECT_THAT(index_of(17, {2, 3, 5}), ElementsAre(1, 0, 2));
  EXPECT_THAT(index_of(0, {}), IsEmpty());
}

TEST(Verify, TheFirstDifferenceBeyondTheToleranceIsKept) {
  Comparison c{.what = "gradient", .scale = 10};
  const Values a{Dtype::f32, {2, 2}, {1, 2, 3, 4}}, same = a;
  const Values b{Dtype::f32, {2, 2}, {1, 2.05, 3.2, 4.5}};
  compare(c, "same", a, same, 0.01);
  EXPECT_TRUE(c.within());
  compare(c, "other", a, b, 0.01);
  EXPECT_EQ(c.tensors, 2U);
  EXPECT_EQ(c.bit_equal, 1U);
  ASSERT_TRUE(c.first);
  EXPECT_EQ(c.first->tensor, "other");
  EXPECT_THAT(c.first->index, ElementsAre(1, 0)) << "2.05 is within a hundredth of 10";
  EXPECT_EQ(c.first->value, 3.2);
  EXPECT_DOUBLE_EQ(c.largest, 0.5);
  EXPECT_EQ(c.where, "other");
}

TEST(Verify, WhatIsNoNumberOnOneSideIsADifference) {
  Comparison c{.scale = 1};
  compare(c, "w", {Dtype::f32, {1}, {NAN}}, {Dtype::f32, {1}, {1}}, 0.1);
  EXPECT_FALSE(c.within());
  EXPECT_EQ(failure_of([&] { compare(c, "w", {Dtype::f32, {1}, {1}}, {Dtype::f32, {2}, {1, 2}}, 0.1); }).kind, Kind::corrupt);
}

TEST(Verify, RoundingThatStoringCostIsAllowedForByElement) {
  Comparison c{.scale = 1};
  compare(c, "w", {Dtype::f32, {2}, {1, 1}}, {Dtype::f32, {2}, {1.5, 1.5}}, 0.1, {{1, 0}, {}});
  ASSERT_TRUE(c.first);
  EXPECT_THAT(c.first->index, ElementsAre(1));
}

TEST(Verify, WhatTheRuleMakesOfGradientsWithinTheToleranceIsAllowedForAndCounted) {
  Comparison c{.scale = 1};
  const Values reference{Dtype::f64, {3}, {1, 1, 1}};
  compare(c, "w", reference, {Dtype::f64, {3}, {1.05, 1.5, 1.5}}, 0.1, {{0, 0, 0}, {0, 0.5, 0.3}});
  EXPECT_EQ(c.amplified, 1U) << "the first is within the tolerance";
  ASSERT_TRUE(c.first);
  EXPECT_THAT(c.first->index, ElementsAre(2));
}

TEST(Verify, StrategiesWhoseRanksTakeStepsOfTheirOwnAreRefused) {
  const char* words[] = {"verify", "--sync", "all_reduce,local_sgd(h=4)"};
  EXPECT_THAT(failure_of([&] { parse_verify(std::size(words), const_cast<char**>(words)); }).what,
              HasSubstr("--sync local_sgd(h=4): its ranks take steps of their own"));
}

TEST(Verify, AnErrorIsPlantedOnARankThatThereIs) {
  const char* words[] = {"verify", "--ranks", "2,4", "--plant-error", "2"};
  EXPECT_THAT(failure_of([&] { parse_verify(std::size(words), const_cast<char**>(words)); }).what, HasSubstr("2 ranks has no such rank"));
}

}  // namespace
}  // namespace cohort::cli
