// backend: gloo under the laws, with ranks as threads and as processes, and when ranks are lost.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cohort/base/slowdown.h"
#include "cohort/net/tcp/tcp.h"
#include "tests/backends/laws.h"
#include "tests/backends/support.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

void hold_all(Communicator& comm) {
  for (const BackendLaw& law : backend_laws()) {
    try {
      law.hold(comm);
    } catch (const std::exception& broken) {
      throw std::runtime_error(std::string(law.name) + " on " + std::to_string(comm.size()) + " ranks: " + broken.what());
    }
  }
}

std::string failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "nothing failed";
}

}  // namespace

TEST(GlooLaws, HoldForOneToNineRanksThatShareMemory) {
  for (int ranks = 1; ranks <= 9; ++ranks) EXPECT_NO_THROW(run_over("gloo", ranks, hold_all));
}

TEST(GlooLaws, HoldForRanksLinkedByTcp) {
  for (const int ranks : {2, 3}) EXPECT_NO_THROW(run_over("gloo", ranks, hold_all, [](int n) { return net::tcp_world(n); }));
}

TEST(GlooLaws, ExplainNamesTheBackendOfEachOperation) {
  run_over("gloo", 2, [](Communicator& comm) {
    std::vector<float> values(10);
    EXPECT_THAT(comm.explain(piece(std::span(values)), Op::sum), HasSubstr("gloo of torch, tcp on 127.0.0.1"));
    EXPECT_THAT(comm.explain(piece(std::span(values)), Op::max), Not(HasSubstr("gloo"))) << "gloo loses NaN in it";
  });
}

TEST(GlooFailures, AMissingRankIsNamedWhenTheDeadlinePasses) {
  run_over("gloo", 3, [](Communicator& comm) {
    if (comm.rank().value == 2) return;
    std::vector<float> values(100'000, 1.0F);
    EXPECT_THAT(failure_of([&] { comm.all_reduce(piece(std::span(values)), Op::sum, {.name = "grad", .deadline = Deadline::in(300ms)}); }),
                AllOf(HasSubstr("all_reduce 'grad'"), HasSubstr("rank 2")));
  });
}

TEST(GlooFailures, AnAbortEndsTheCollectiveOfAllRanksAndStays) {
  run_over("gloo", 3, [](Communicator& comm) {
    std::vector<float> values(100'000, 1.0F), here(1);  // an abort that came earlier would end the others' opening instead
    if (comm.rank().value != 0) comm.send(piece(std::span(here)), Rank{0}, 7);
    for (int r = 1; comm.rank().value == 0 && r < comm.size(); ++r) comm.recv(piece(std::span(here)), Rank{r}, 7);
    if (comm.rank().value == 0) comm.abort({Kind::aborted, "the user pressed stop", Rank{0}});
    const auto all = [&] {
      for (const auto limit = Deadline::in(20s); !limit.passed();) comm.all_reduce(piece(std::span(values)), Op::sum);
    };
    EXPECT_THAT(failure_of(all), HasSubstr("the user pressed stop"));
    EXPECT_THAT(failure_of(all), HasSubstr("the user pressed stop"));
  });
}

TEST(GlooProcess, LawsHoldForProcesses) {
  const auto run = capture("COHORT_BACKEND=gloo COHORT_DETERMINISTIC=false " COHORT_BINARY " run -n 3 -- " BACKEND_RANK " laws");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("rank 0 of 3: 12 laws hold"), HasSubstr("rank 2 of 3: 12 laws hold"),
                              HasSubstr("backend: gloo: gloo of torch")));
}

TEST(GlooProcess, AKilledRankIsNamedWithinASecond) {
  const auto run = capture("COHORT_BACKEND=gloo COHORT_DETERMINISTIC=false " COHORT_BINARY " run -n 3 --grace 5s -- " BACKEND_RANK " die");
  EXPECT_NE(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("all_reduce"), HasSubstr("rank 1"), AnyOf(HasSubstr("died"), HasSubstr("lost"))));
  std::smatch after;
  ASSERT_TRUE(std::regex_search(run.text, after, std::regex("after ([0-9]+\\.[0-9]+) s:"))) << run.text;
  EXPECT_LT(std::stod(after[1]), slowdown());
}

}  // namespace cohort::collective
