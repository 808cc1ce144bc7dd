#include "cohort/launch/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FailureReport, KeepsTheMessageOfATorchErrorAndNotItsBacktrace) {
  StderrTail tail;
  tail.add("terminate called after throwing an instance of 'c10::Error'\n  what():  mat1 and mat2 shapes cannot be multiplied\n");
  tail.add("Exception raised from meta at ../LinearAlgebra.cpp:1 (most recent call first):\n");
  for (int i = 0; i < 40; ++i) tail.add("frame #" + std::to_string(i) + ": at::_ops::addmm::call(..) + 0x4e (0x7f in libtorch_cpu.so)\n");
  tail.add("\n");
  EXPECT_THAT(tail.lines(), ElementsAre("terminate called after throwing an instance of 'c10::Error'",
                                        HasSubstr("mat1 and mat2 shapes cannot be multiplied")));
}

TEST(FailureReport, TheRankThatReportsTheCauseIsTheCause) {
  EXPECT_EQ(blamed_rank({"cohort train: model and data: it failed on rank 3, which reports the cause"}, 1), 3);
  FailureLog log;
  log.add({.rank = 1, .status = 256});
  log.add({.rank = 0, .status = 256});
  const auto cause = log.cause([](int rank) -> std::vector<std::string> {
    return {rank == 1 ? "model and data: it failed on rank 0, which reports the cause" : "bad.csv, line 151: no number"};
  });
  EXPECT_EQ(cause.rank, 0);
  EXPECT_THAT(failure_text(cause), HasSubstr("rank 0 failed first"));
  EXPECT_THAT(failure_text(cause), HasSubstr("bad.csv, line 151: no number\n"));
}

TEST(FailureReport, AWorkerHasItsNameBesideItsRank) {
  EXPECT_THAT(failure_text({.rank = 5, .pid = 9, .status = 256, .name = "worker 5 (rank 0)"}),
              HasSubstr("worker 5 (rank 0) failed first: exit status 1"));
}

}  // namespace
}  // namespace cohort::launch
