#include "cohort/train/loop/rescue.h"

#include <gmock/gmock.h>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

using testing::HasSubstr;

TEST(Account, ComesBackBitForBit) {
  const Account mine{12, true, {false, 0.1 + 0.2, {true, false, true}}};
  const Account read = parse_account(format_account(mine), "rank-00001.json");
  EXPECT_EQ(read.step, 12);
  EXPECT_TRUE(read.undecided);
  EXPECT_FALSE(read.decision.committed);
  EXPECT_EQ(read.decision.clip, 0.1 + 0.2);
  EXPECT_EQ(read.decision.missing, mine.decision.missing);
  EXPECT_THAT(failure_of([] { parse_account("{}", "rank-00001.json"); }).what, HasSubstr("rank-00001.json"));
}

TEST(Account, OfTheFurthestIsFollowedByThoseThatHeardNoEndOfTheVote) {
  const std::vector<Account> all{{5, false, {}}, {6, false, {true, 0.5, {}}}, {5, true, {}}};
  EXPECT_THAT(failure_of([&] { furthest(all); }).what, HasSubstr("another stands at 5")) << "the first had not come to the vote";
  const Account end = furthest(std::span(all).subspan(1));
  EXPECT_EQ(end.step, 6);
  EXPECT_EQ(end.decision.clip, 0.5);
  EXPECT_EQ(furthest(std::span(all).subspan(2)).step, 5) << "nobody knows how it ended: the step is made again";
}

}  // namespace
}  // namespace cohort
