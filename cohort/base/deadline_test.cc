#include "cohort/base/deadline.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Deadline, ByDefaultNeverComes) {
  const Deadline never;
  EXPECT_TRUE(never.never());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.left(), Clock::duration::max());
  EXPECT_EQ(never.left_ms(), 60'000);
  EXPECT_TRUE(Deadline::in(Seconds{1e12}).never()) << "longer than the clock can count";
}

TEST(Deadline, PassesAtItsMoment) {
  EXPECT_TRUE(Deadline{Clock::now() - 1ms}.passed());
  EXPECT_EQ(Deadline{Clock::now() - 1s}.left(), Clock::duration::zero());
  EXPECT_EQ(Deadline{Clock::now() - 1s}.left_ms(), 0);
  EXPECT_TRUE(Deadline::in(0s).passed());
  EXPECT_TRUE(Deadline::in(-5s).passed());
  EXPECT_FALSE(Deadline::in(100s).passed());
}

TEST(Deadline, MillisecondsRoundUpAndStayBelowAMinute) {
  const auto soon = Deadline{Clock::now() + 10s};
  EXPECT_GT(soon.left_ms(), 0);
  EXPECT_LE(soon.left_ms(), 10'000);
  EXPECT_EQ(Deadline::in(1h).left_ms(), 60'000);
}

TEST(Deadline, TheSoonerOfTwo) {
  const auto now = Clock::now();
  EXPECT_EQ(Deadline{now}.sooner(Deadline{now + 1s}).at(), now);
  EXPECT_EQ(Deadline{}.sooner(Deadline{now}).at(), now);
  EXPECT_TRUE(Deadline{}.sooner(Deadline{}).never());
}

}  // namespace
}  // namespace cohort
