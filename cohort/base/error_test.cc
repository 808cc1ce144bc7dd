#include "cohort/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

TEST(Error, AFailureCarriesKindTextAndRank) {
  const Failure failure{{Kind::peer_lost, "tcp: rank 3 closed", Rank{3}}};
  EXPECT_EQ(failure.kind(), Kind::peer_lost);
  EXPECT_STREQ(failure.what(), "tcp: rank 3 closed");
  EXPECT_EQ(failure.error().rank, Rank{3});
}

TEST(Error, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  for (int k = 0; k <= static_cast<int>(Kind::bug); ++k) names.insert(kind_name(static_cast<Kind>(k)));
  EXPECT_EQ(names.size(), 7U);
  EXPECT_EQ(kind_name(Kind::peer_lost), "peer_lost");
}

TEST(Error, ThrowFailureFormats) {
  const auto error = failure_of([] { throw_failure(Kind::usage, "count {} is {}", 3, "odd"); });
  EXPECT_EQ(error.kind, Kind::usage);
  EXPECT_EQ(error.what, "count 3 is odd");
  EXPECT_EQ(error.rank, kNoRank);
}

TEST(Error, SystemFailuresSayWhatTheSystemSaid) {
  errno = ENOENT;
  EXPECT_EQ(failure_of([] { throw_system("open /x"); }).what, "open /x: No such file or directory");
  EXPECT_EQ(failure_of([] { throw_system("bind", EADDRINUSE); }).what, "bind: Address already in use");
}

}  // namespace
}  // namespace cohort
