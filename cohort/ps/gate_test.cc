#include "cohort/ps/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/failure_of.h"

namespace cohort::ps {
namespace {

using testing::HasSubstr;

TEST(Gate, OpensWhenTheSlowestIsAtMostItsSlackBehind) {
  for (const std::int64_t s : {0, 1, 2, 7}) {
    const Gate gate = make_gate(fmt::format("ssp({})", s));
    for (std::int64_t clock = 0; clock < 20; ++clock)
      for (std::int64_t low = 0; low <= clock; ++low)
        EXPECT_EQ(gate.opens(clock, low), clock - low <= s) << s << " " << clock << " " << low;
  }
}

TEST(Gate, OfBulkSynchronousReadsIsThatOfNoSlack) {
  EXPECT_TRUE(make_gate("bsp").ordered());
  EXPECT_TRUE(make_gate("ssp(0)").ordered());
  EXPECT_FALSE(make_gate("ssp(1)").ordered());
  EXPECT_FALSE(make_gate("tap").ordered());
  EXPECT_FALSE(make_gate("bsp").opens(1, 0));
  EXPECT_TRUE(make_gate("tap").opens(1000, 0));
}

TEST(Gate, OfBoundedDelayLetsOnesOwnUpdatesBeLateToo) {
  EXPECT_EQ(make_gate("bounded_delay(3)").own(10), 7);
  EXPECT_EQ(make_gate("ssp(3)").own(10), 10);
  EXPECT_EQ(make_gate("tap").own(10), 10);
}

TEST(Gate, NamesThoseThereAreWhenOneIsUnknown) {
  EXPECT_THAT(failure_of([] { make_gate("spp(2)"); }).what, HasSubstr("ssp"));
  EXPECT_THAT(failure_of([] { make_gate("ssp(-1)"); }).what, HasSubstr("out of range"));
  for (const GateRow& row : gates()) EXPECT_EQ(make_gate(row.name).spec, row.name);
}

}  // namespace
}  // namespace cohort::ps
