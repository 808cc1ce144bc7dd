// backend: mpi under the laws, with processes of mpirun.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/support.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Captured mpirun(int ranks, const std::string& what) {
  return capture(fmt::format("COHORT_BACKEND=mpi COHORT_DETERMINISTIC=false {} --allow-run-as-root --oversubscribe -n {} {} {}",
                             BACKEND_MPIRUN, ranks, BACKEND_RANK, what));
}

}  // namespace

TEST(MpiProcess, LawsHoldForTwoToNineRanks) {
  for (const int ranks : {2, 3, 4, 9}) {
    const auto run = mpirun(ranks, "laws");
    EXPECT_EQ(run.status, 0) << run.text;
    for (int r = 0; r < ranks; ++r) EXPECT_THAT(run.text, HasSubstr(fmt::format("rank {} of {}: 12 laws hold", r, ranks)));
  }
}

TEST(MpiProcess, AWorldOfOneNeedsNoLauncher) {
  const auto run = capture("COHORT_BACKEND=mpi COHORT_DETERMINISTIC=false " BACKEND_RANK " laws");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("rank 0 of 1: 12 laws hold"));
}

TEST(MpiProcess, ExplainSaysThatMpiReduces) {
  const auto run = mpirun(2, "sum");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("sum 2; mpi carries it:"), HasSubstr("backend: mpi: ")));
}

TEST(MpiProcess, ALostRankEndsTheJob) {  // mpirun ends the others, at times before they have printed anything
  const auto run = mpirun(3, "die");
  EXPECT_NE(run.status, 0) << run.text;
  EXPECT_NE(run.status, 124) << "the job hung:\n" << run.text;
  EXPECT_THAT(run.text, Not(HasSubstr("nothing happened")));
}

TEST(MpiProcess, RanksThatMpiDidNotStartAreRefusedWithTheNextStep) {
  const auto run = capture("COHORT_BACKEND=mpi COHORT_DETERMINISTIC=false " COHORT_BINARY " run -n 2 -- " BACKEND_RANK " sum");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.text, AllOf(HasSubstr("backend: mpi"), HasSubstr("`cohort run`"), HasSubstr("mpirun -n N program")));
}

}  // namespace cohort::collective
