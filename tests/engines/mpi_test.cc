// comm: mpi under the laws, with processes of mpirun.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engines/support.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Captured mpirun(int ranks, const std::string& what) {
  return capture(fmt::format("COHORT_COMM=mpi COHORT_BITS=free {} --allow-run-as-root --oversubscribe -n {} {} {}", ENGINE_MPIRUN, ranks,
                             ENGINE_RANK, what));
}

}  // namespace

TEST(MpiProcess, LawsHoldForTwoToNineRanks) {
  for (const int ranks : {2, 3, 4, 9}) {
    const auto run = mpirun(ranks, "laws");
    EXPECT_EQ(run.status, 0) << run.text;
    for (int r = 0; r < ranks; ++r) EXPECT_THAT(run.text, HasSubstr(fmt::format("rank {} of {}: 11 laws hold", r, ranks)));
  }
}

TEST(MpiProcess, AWorldOfOneNeedsNoLauncher) {
  const auto run = capture("COHORT_COMM=mpi COHORT_BITS=free " ENGINE_RANK " laws");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("rank 0 of 1: 11 laws hold"));
}

TEST(MpiProcess, ExplainSaysThatMpiReduces) {
  const auto run = mpirun(2, "sum");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("sum 2; mpi underneath:"), HasSubstr("comm: mpi: ")));
}

TEST(MpiProcess, ALostRankEndsTheJob) {  // mpirun ends the others, at times before they have said anything
  const auto run = mpirun(3, "die");
  EXPECT_NE(run.status, 0) << run.text;
  EXPECT_NE(run.status, 124) << "the job hung:\n" << run.text;
  EXPECT_THAT(run.text, Not(HasSubstr("nothing happened")));
}

TEST(MpiProcess, RanksThatMpiDidNotStartAreRefusedWithTheNextStep) {
  const auto run = capture("COHORT_COMM=mpi COHORT_BITS=free " COHORT_BINARY " run -n 2 -- " ENGINE_RANK " sum");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.text, AllOf(HasSubstr("comm: mpi"), HasSubstr("`cohort run`"), HasSubstr("mpirun -n N program")));
}

}  // namespace cohort::collective
