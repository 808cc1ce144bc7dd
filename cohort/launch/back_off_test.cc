#include "cohort/launch/back_off.h"

#include <gtest/gtest.h>

namespace cohort::launch {
namespace {

TEST(BackOff, OnePauseForAllThatFailsInItAndOnlyTheFirstInARowIsNew) {
  BackOff pause;
  EXPECT_TRUE(pause.ready());
  EXPECT_TRUE(pause.until().never());
  EXPECT_FALSE(pause.reset()) << "nothing has failed";
  EXPECT_TRUE(pause.again());
  EXPECT_TRUE(pause.pausing());
  EXPECT_LE(pause.until().at(), Deadline::in(BackOff::kFirst).at());
  const Deadline until = pause.until();
  EXPECT_FALSE(pause.again());
  EXPECT_EQ(pause.until().at(), until.at()) << "no longer for it";
  EXPECT_TRUE(pause.reset());
  EXPECT_FALSE(pause.reset());
}

}  // namespace
}  // namespace cohort::launch
