#include "cohort/job/run_on_all.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>

#include "cohort/net/transport/loopback.h"

namespace cohort::job {
namespace {

// What each of three ranks ends with when rank r does part(r).
std::vector<std::optional<Error>> ends_of(const std::function<void(int)>& part) {
  auto links = net::loopback_world(3);
  std::vector<std::optional<Error>> ends(3);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&, r] {
      const auto comm = collective::open(std::move(links[static_cast<std::size_t>(r)]), {.timeout = Seconds{20}});
      try {
        run_on_all(*comm, "the part", [&] { part(r); });
        comm->barrier();  // the communicator still works
      } catch (const Failure& failure) {
        ends[static_cast<std::size_t>(r)] = failure.error();
      }
    });
  for (auto& rank : ranks) rank.join();
  return ends;
}

TEST(RunOnAll, ReturnsWhereNoRankFailed) {
  for (const auto& end : ends_of([](int) {})) EXPECT_FALSE(end);
}

TEST(RunOnAll, OneRankReportsTheCauseAndTheOthersNameIt) {
  const auto ends = ends_of([](int rank) {
    if (rank > 0) throw_failure(Kind::usage, "no such model on rank {}", rank);
  });
  ASSERT_TRUE(ends[0] && ends[1] && ends[2]);
  EXPECT_EQ(ends[1]->what, "no such model on rank 1");
  EXPECT_FALSE(reported_by_another_rank(*ends[1], Rank{1}));
  for (const int other : {0, 2}) {
    const Error& end = *ends[static_cast<std::size_t>(other)];
    EXPECT_EQ(end.what, "the part: it failed on rank 1, which reports the cause");
    EXPECT_EQ(end.kind, Kind::usage);
    EXPECT_TRUE(reported_by_another_rank(end, Rank{other}));
  }
}

TEST(RunOnAll, AnExceptionOfAnotherKindStopsAllRanksToo) {
  const auto ends = ends_of([](int rank) {
    if (rank == 2) throw_failure(Kind::corrupt, "bad bytes");
  });
  ASSERT_TRUE(ends[0] && ends[2]);
  EXPECT_EQ(ends[0]->kind, Kind::corrupt);
  EXPECT_FALSE(reported_by_another_rank(*ends[0], Rank{0})) << "only wrong settings are reported by one rank alone";
}

}  // namespace
}  // namespace cohort::job
