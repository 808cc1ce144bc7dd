// Which backend is chosen, which is refused, and the messages about it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/slowdown.h"
#include "cohort/collective/native/backend_choice.h"
#include "tests/backends/support.h"

namespace cohort::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const Options& options, const BackendOptions& backend_options) {
  try {
    open(std::move(net::loopback_world(1).front()), options, backend_options);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), Kind::usage);
    return failure.what();
  }
  return "not refused";
}

}  // namespace

TEST(BackendChoice, TheNativeBackendStaysUnlessAnotherIsClearlyFaster) {
  const BackendTimes native{"native", {1e-4, 1e-3, 1e-2}, ""}, same{"gloo", {0.95e-4, 0.95e-3, 0.95e-2}, ""},
      fast{"mpi", {1e-4, 5e-4, 5e-3}, ""};
  EXPECT_EQ(choose_backend(std::vector{native, same}).name, "native");
  EXPECT_EQ(choose_backend(std::vector{native, same, fast}).name, "mpi");
  EXPECT_EQ(choose_backend(std::vector{native, BackendTimes{"gloo", {}, "not there"}}).name, "native");
}

TEST(BackendChoice, OnlySizesThatBothHaveCount) {
  const BackendTimes native{"native", {1e-4, 1e-3}, ""}, other{"gloo", {0.5e-4}, ""};
  EXPECT_EQ(choose_backend(std::vector{native, other}).name, "gloo");
}

TEST(BackendChoice, TheTextHasTheFiguresAndTheReasons) {
  const std::vector<BackendTimes> all{{"native", {1e-4, 1e-3}, ""}, {"gloo", {2e-4, 3e-3}, ""}, {"nccl", {}, "it moves GPU memory only"}};
  EXPECT_EQ(
      choice_text(all),
      "backend: auto takes native: native reduces 64 KiB in 100 us, 4 MiB in 1 ms; gloo reduces 64 KiB in 200 us, 4 MiB in 3 ms; nccl not "
      "tried: it moves GPU memory only");
  EXPECT_THAT(choice_text(std::vector<BackendTimes>{{"native", {1e-4}, ""}, {"gloo", {}, "no route", true}}),
              HasSubstr("; gloo failed: no route"));
}

TEST(BackendRefusals, AMissingBackendNamesTheFoldersSearched) {
  EXPECT_THAT(refusal({.canonical_only = false}, {.name = "gloo", .folder = "/nowhere"}),
              AllOf(HasSubstr("backend: gloo: libcohort_backend_gloo.so is not in /nowhere"), HasSubstr(";")));
}

TEST(BackendRefusals, DeterminismAndAnotherBackendExcludeEachOther) {
  EXPECT_THAT(refusal({}, {.name = "mpi"}),
              AllOf(HasSubstr("backend: mpi adds in an order of its own"), HasSubstr("deterministic: false")));
}

TEST(BackendRefusals, AnUnknownBackendSuggestsAKnownOne) {
  EXPECT_THAT(refusal({.canonical_only = false}, {.name = "glo"}), HasSubstr("did you mean 'gloo'"));
}

TEST(BackendRefusals, ALibraryThatIsNoBackendIsNamed) {
  const std::string folder = ::testing::TempDir() + "/backends";
  ASSERT_EQ(capture(fmt::format("sh -c 'mkdir -p {} && echo no > {}/libcohort_backend_gloo.so'", folder, folder)).status, 0);
  EXPECT_THAT(refusal({.canonical_only = false}, {.name = "gloo", .folder = folder}), HasSubstr("cannot be loaded"));
}

TEST(BackendRefusals, RanksWithDifferentSettingsAreNamed) {
  std::mutex mutex;
  std::string output;
  auto all_links = net::loopback_world(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r, links = std::shared_ptr<net::PeerLinks>(std::move(all_links[static_cast<std::size_t>(r)]))]() mutable {
      try {
        open(std::move(links), {.timeout = Seconds{10}, .canonical_only = false}, {.name = r == 0 ? "native" : "auto"});
      } catch (const Failure& failure) {
        const std::lock_guard lock(mutex);
        output += failure.what();
      }
    });
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(output, HasSubstr("rank 1 has backend: auto, rank 0 has backend: native"));
}

TEST(AutoProcess, LogsTheFiguresAndWorks) {
  const auto run =
      capture("COHORT_BACKEND=auto COHORT_DETERMINISTIC=false COHORT_LOG=info " COHORT_BINARY " run -n 2 -- " BACKEND_RANK " laws");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, AllOf(HasSubstr("backend: auto takes "), HasSubstr("native reduces 64 KiB in "), HasSubstr("mpi not tried: "),
                              HasSubstr("nccl not tried: it moves GPU memory only"), HasSubstr("rank 1 of 2: 12 laws hold")));
}

// A backend that opens and then fails: on every rank, on one, or by standing still (broken_backend.cc). No rank waits for the job's
// timeout. Most of it is waiting, so another test may run beside it: it is not called one of processes.
TEST(AutoChoice, GoesOnWithoutABackendThatDoesNotWork) {
  struct Case {
    const char *how, *transport, *warning;
  };
  for (const auto& [how, transport, warning] :
       {Case{"all", "shm", "rank 0 warning: {}out of order on rank 0"}, Case{"all", "tcp", "rank 0 warning: {}out of order on rank 0"},
        Case{"one", "shm", "rank 1 warning: {}out of order on rank 1"}, Case{"later", "tcp", "rank 1 warning: {}out of order on rank 1"},
        Case{"stall", "shm", "rank 0 warning: {}no data moved"}}) {
    const auto start = Clock::now();
    const auto run = capture(fmt::format("BROKEN_BACKEND={} COHORT_TRANSPORT={} COHORT_BACKENDS=" BROKEN_BACKENDS
                                         " COHORT_BACKEND=auto COHORT_DETERMINISTIC=false COHORT_LOG=info " COHORT_BINARY
                                         " run -n 3 -- " BACKEND_RANK " laws",
                                         how, transport));
    EXPECT_EQ(run.status, 0) << how << " over " << transport << ": " << run.text;
    EXPECT_THAT(run.text,
                AllOf(HasSubstr("backend: auto takes native: "), HasSubstr("gloo failed: "), HasSubstr("rank 1 of 3: 12 laws hold")));
    EXPECT_THAT(run.text,
                HasSubstr(fmt::format(fmt::runtime(warning), "backend: auto goes on without gloo, which failed when it was tried: ")));
    EXPECT_LT(Clock::now() - start, 30s * slowdown());
  }
}

TEST(AutoProcess, WithDeterminismItIsNativeAndLogsSo) {
  const auto run = capture("COHORT_BACKEND=auto COHORT_LOG=info " COHORT_BINARY " run -n 2 -- " BACKEND_RANK " sum");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_THAT(run.text, HasSubstr("backend: auto takes native: deterministic: true leaves no other"));
}

}  // namespace cohort::collective
