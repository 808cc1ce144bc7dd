#include "cohort/engine/gradient_arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ArrivalCounter counter_of_two_buckets() {  // parameters 0 and 1 in bucket 0, parameter 2 in bucket 1
  ArrivalCounter counter;
  counter.assign_buckets({2, 1});
  counter.clear_touched(3);
  counter.start(3, true);
  return counter;
}

TEST(ArrivalCounter, TellsWhenABucketIsCompleteAndRemembersTheOrder) {
  ArrivalCounter counter = counter_of_two_buckets();
  EXPECT_TRUE(counter.none_yet());
  EXPECT_FALSE(counter.add(1, 0));
  EXPECT_TRUE(counter.add(2, 1));
  EXPECT_TRUE(counter.complete(1));
  EXPECT_FALSE(counter.complete(0));
  EXPECT_TRUE(counter.add(0, 0));
  EXPECT_THAT(counter.order(), ElementsAre(1, 2, 0));
  EXPECT_THAT(counter.completed(), ElementsAre(1, 0));
}

TEST(ArrivalCounter, RefusesASecondGradientUntilTheNextBackward) {
  ArrivalCounter counter = counter_of_two_buckets();
  counter.add(2, 1);
  EXPECT_THAT(failure_of([&] { counter.refuse_second(2, "w", 7); }).what, HasSubstr("w got a second gradient in step 7"));
  counter.refuse_second(0, "v", 7);
  counter.start(3, false);
  counter.refuse_second(2, "w", 8);
}

TEST(ArrivalCounter, CompletesWhatGotNoGradientAndKeepsWhatAnAccumulatedStepTouched) {
  ArrivalCounter counter = counter_of_two_buckets();
  counter.touch(1);
  counter.complete_all();
  EXPECT_TRUE(counter.complete(0));
  EXPECT_TRUE(counter.completed().empty()) << "only what gradients completed";
  counter.start(3, false);
  EXPECT_THAT(counter.touched(), ElementsAre(false, true, false));
  counter.clear_touched(3);
  EXPECT_THAT(counter.touched(), ElementsAre(false, false, false));
}

}  // namespace
}  // namespace cohort::engine
