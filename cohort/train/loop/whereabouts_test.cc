#include "cohort/train/loop/whereabouts.h"

#include <gmock/gmock.h>

#include "cohort/net/loopback.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(Whereabouts, TellsStepAndPhase) {
  Whereabouts where;
  EXPECT_THAT(where.text(), MatchesRegex("starting for .*"));
  where.step(12, 400);
  where.doing("evaluating");
  EXPECT_THAT(where.text(), MatchesRegex("step 12 of 400, evaluating for .*"));
}

TEST(Whereabouts, NamesTheOperationsItIsInside) {
  Whereabouts where;
  {
    const Operation first(where, "all_reduce", "bucket 3", 2048);
    const Operation second(where, "barrier", "the end", 0);
    EXPECT_THAT(where.text(), MatchesRegex(".*; in all_reduce 'bucket 3', 2 KiB, for .*; in barrier 'the end' for .*"));
  }
  EXPECT_THAT(where.text(), Not(HasSubstr("in all_reduce")));
}

TEST(Whereabouts, AWatchedCommunicatorComputesTheSameAndLeavesNothingBehind) {
  Whereabouts where;
  const auto comm = collective::open(std::move(net::loopback_meshes(1).front()));
  const auto seen = watched(*comm, where);
  EXPECT_EQ(seen->rank(), comm->rank());
  double values[] = {1, 2};
  seen->all_reduce(collective::piece(std::span<double>(values)), collective::Op::sum, {.name = "values"});
  seen->barrier({.name = "the end"});
  EXPECT_EQ(seen->split(0)->size(), 1);
  EXPECT_EQ(values[1], 2);
  EXPECT_THAT(where.text(), Not(HasSubstr("; in ")));
}

}  // namespace
}  // namespace cohort
