// Who is chosen, who is refused, and what is said about it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/slowdown.h"
#include "cohort/collective/engine_choice.h"
#include "tests/engines/support.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const Options& options, const Underneath& under) {
  try {
    open(std::move(net::loopback_meshes(1).front()), options, under);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "not refused";
}

}  // namespace

TEST(EngineChoice, TheOwnEngineStaysUnlessAnotherIsClearlyFaster) {
  const EngineTimes own{"own", {1e-4, 1e-3, 1e-2}, ""}, same{"gloo", {0.95e-4, 0.95e-3, 0.95e-2}, ""}, fast{"mpi", {1e-4, 5e-4, 5e-3}, ""};
  EXPECT_EQ(choose_engine(std::vector{own, same}).name, "own");
  EXPECT_EQ(choose_engine(std::vector{own, same, fast}).name, "mpi");
  EXPECT_EQ(choose_engine(std::vector{own, EngineTimes{"gloo", {}, "not there"}}).name, "own");
}

TEST(EngineChoice, OnlySizesThatBothHaveCount) {
  const EngineTimes own{"own", {1e-4, 1e-3}, ""}, other{"gloo", {0.5e-4}, ""};
  EXPECT_EQ(choose_engine(std::vector{own, other}).name, "gloo");
}

TEST(EngineChoice, TheFiguresAndTheReasonsAreSaid) {
  const std::vector<EngineTimes> all{{"own", {1e-4, 1e-3}, ""}, {"gloo", {2e-4, 3e-3}, ""}, {"nccl", {}, "it moves GPU memory only"}};
  EXPECT_EQ(choice_text(all),
            "comm: auto takes own: own reduces 64 KiB in 100 us, 4 MiB in 1 ms; gloo reduces 64 KiB in 200 us, 4 MiB in 3 ms; nccl not "
            "tried: it moves GPU memory only");
  EXPECT_THAT(choice_text(std::vector<EngineTimes>{{"own", {1e-4}, ""}, {"gloo", {}, "no route", true}}),
              HasSubstr("; gloo failed: no route"));
}

TEST(EngineRefusals, AnEngineThatIsNotThereSaysWhereItWasLookedFor) {
  EXPECT_THAT(refusal({.canonical_only = false}, {.comm = "gloo", .folder = "/nowhere"}),
              AllOf(HasSubstr("comm: gloo: libcohort_engine_gloo.so is not in /nowhere"), HasSubstr(";")));
}

TEST(EngineRefusals, SameBitsAndAnEngineExcludeEachOther) {
  EXPECT_THAT(refusal({}, {.comm = "mpi"}), AllOf(HasSubstr("comm: mpi adds in an order of its own"), HasSubstr("bits: free")));
}

TEST(EngineRefusals, AnUnknownEngineIsAnsweredWithTheKnownOnes) {
  EXPECT_THAT(refusal({.canonical_only = false}, {.comm = "glo"}), HasSubstr("did you mean 'gloo'"));
}

TEST(EngineRefusals, ALibraryThatIsNoEngineIsNamed) {
  const std::string folder = ::testing::TempDir() + "/engines";
  ASSERT_EQ(capture(fmt::format("sh -c 'mkdir -p {} && echo no > {}/libcohort_engine_gloo.so'", folder, folder)).status, 0);
  EXPECT_THAT(refusal({.canonical_only = false}, {.comm = "gloo", .folder = folder}), HasSubstr("cannot be loaded"));
}

TEST(EngineRefusals, RanksToldDifferentlyAreNamed) {
  std::mutex mutex;
  std::string said;
  auto meshes = net::loopback_meshes(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r, mesh = std::shared_ptr<net::Mesh>(std::move(meshes[static_cast<std::size_t>(r)]))]() mutable {
      try {
        open(std::move(mesh), {.timeout = Seconds{10}, .canonical_only = false}, {.comm = r == 0 ? "own" : "auto"});
      } catch (const Failure& failure) {
        const std::lock_guard lock(mutex);
        said += failure.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(said, HasSubstr("rank 1 was told comm: auto, rank 0 comm: own"));
}

TEST(AutoProcess, SaysTheFiguresAndWorks) {
  const auto run = capture("COHORT_COMM=auto COHORT_BITS=free COHORT_LOG=info " COHORT_BINARY " run -n 2 -- " ENGINE_RANK " laws");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("comm: auto takes "), HasSubstr("own reduces 64 KiB in "), HasSubstr("mpi not tried: "),
                              HasSubstr("nccl not tried: it moves GPU memory only"), HasSubstr("rank 1 of 2: 11 laws hold")));
}

// An engine that opens and then fails: on every rank, on one, or by standing still (broken_engine.cc). Nobody waits for the job's timeout.
// Most of it is waiting, so another test may run beside it: it is not called one of processes.
TEST(AutoChoice, GoesOnWithoutAnEngineThatDoesNotWork) {
  struct Case {
    const char *how, *transport, *told;
  };
  for (const auto& [how, transport, told] :
       {Case{"all", "shm", "rank 0 warning: {}out of order on rank 0"}, Case{"all", "tcp", "rank 0 warning: {}out of order on rank 0"},
        Case{"one", "shm", "rank 1 warning: {}out of order on rank 1"}, Case{"later", "tcp", "rank 1 warning: {}out of order on rank 1"},
        Case{"stall", "shm", "rank 0 warning: {}nobody moved"}}) {
    const auto start = Clock::now();
    const auto run =
        capture(fmt::format("BROKEN_ENGINE={} COHORT_TRANSPORT={} COHORT_ENGINES=" BROKEN_ENGINES
                            " COHORT_COMM=auto COHORT_BITS=free COHORT_LOG=info " COHORT_BINARY " run -n 3 -- " ENGINE_RANK " laws",
                            how, transport));
    EXPECT_EQ(run.status, 0) << how << " over " << transport << ": " << run.text;
    EXPECT_THAT(run.text, AllOf(HasSubstr("comm: auto takes own: "), HasSubstr("gloo failed: "), HasSubstr("rank 1 of 3: 11 laws hold")));
    EXPECT_THAT(run.text, HasSubstr(fmt::format(fmt::runtime(told), "comm: auto goes on without gloo, which failed when it was tried: ")));
    EXPECT_LT(Clock::now() - start, 30s * slowdown());
  }
}

TEST(AutoProcess, WithSameBitsItIsOwnAndSaysSo) {
  const auto run = capture("COHORT_COMM=auto COHORT_LOG=info " COHORT_BINARY " run -n 2 -- " ENGINE_RANK " sum");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("comm: auto takes own: bits: same leaves no other"));
}

}  // namespace cohort::collective
