// Ranks as real processes, over shared memory and over tcp: a rank killed in the middle of any collective is an error on all survivors
// within 1 s that names it; waiting burns no CPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "cohort/base/slowdown.h"
#include "tests/laws/processes.h"

namespace cohort::collective {
namespace {

using ::testing::HasSubstr;

struct CollectiveCase {
  std::string name;
  std::function<void(Communicator&, std::vector<float>&)> run;
};

Piece part(std::vector<float>& values, std::size_t count) { return piece(std::span(values).first(count)); }

const std::vector<CollectiveCase>& collectives() {
  constexpr std::size_t kMany = 300'000;
  static const std::vector<CollectiveCase> all{
      {"all_reduce_large", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max); }},
      {"all_reduce_small", [](Communicator& c, auto& v) { c.all_reduce(part(v, 1), Op::max); }},
      {"all_reduce_ring", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max, {.algorithm = "ring"}); }},
      {"all_reduce_hierarchical", [](Communicator& c, auto& v) { c.all_reduce(part(v, kMany), Op::max, {.algorithm = "hierarchical"}); }},
      {"all_reduce_zero_copy",
       [](Communicator& c, auto&) {
         thread_local const Region region = c.allocate(kMany * sizeof(float));
         c.all_reduce(piece(region.as<float>()), Op::max, {.algorithm = c.transport() == "shm" ? "zero_copy" : "tree"});
       }},
      {"reduce_scatter", [](Communicator& c, auto& v) { c.reduce_scatter(part(v, 3 * 1000), piece(std::span(v).last(1000)), Op::max); }},
      {"all_gather", [](Communicator& c, auto& v) { c.all_gather(piece(std::span(v).last(1000)), part(v, 3000)); }},
      {"broadcast", [](Communicator& c, auto& v) { c.broadcast(part(v, kMany), Rank{1}); }},
      {"reduce", [](Communicator& c, auto& v) { c.reduce(part(v, kMany), part(v, kMany), Op::max, Rank{0}); }},
      {"gather", [](Communicator& c, auto& v) { c.gather(piece(std::span(v).last(1000)), part(v, 3000), Rank{2}); }},
      {"scatter", [](Communicator& c, auto& v) { c.scatter(part(v, 3000), piece(std::span(v).last(1000)), Rank{1}); }},
      {"all_to_all", [](Communicator& c, auto& v) { c.all_to_all(part(v, 3000), piece(std::span(v).last(3000))); }},
      {"barrier", [](Communicator& c, auto&) { c.barrier(); }},
      {"recv",
       [](Communicator& c, auto& v) {
         const int right = (c.rank().value + 1) % c.size();
         const int left = (c.rank().value + c.size() - 1) % c.size();
         c.send(part(v, 100), Rank{right}, 3);
         c.recv(part(v, 100), Rank{left}, 3);
       }},
  };
  return all;
}

void expect_death_is_named(const std::string& transport, const CollectiveCase& collective) {
  Ranks ranks(3, transport, [&](Communicator& comm) -> std::string {
    if (comm.transport() != transport) return "wrong transport";
    std::vector<float> values(700'000, 1.0F);
    for (const auto end = Clock::now() + 15s; Clock::now() < end;) collective.run(comm, values);
    return "nothing happened";
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(ranks.read_line(r), "ready");
  for (int r = 0; r < 3; ++r) usleep(3000);  // somewhere in the middle; any moment must do
  const auto start = Clock::now();
  ranks.kill_one(1);
  for (const int survivor : {0, 2}) {
    const auto output = ranks.read_line(survivor);
    EXPECT_THAT(output, HasSubstr("rank 1")) << collective.name << " on rank " << survivor;
    EXPECT_THAT(output, ::testing::AnyOf(HasSubstr("died"), HasSubstr("lost"), HasSubstr("closed")))
        << collective.name << " on rank " << survivor;
  }
  EXPECT_LT(Seconds(Clock::now() - start).count(), 1.0 * slowdown()) << collective.name;
}

}  // namespace

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOnSharedMemory) {
  for (const auto& collective : collectives()) expect_death_is_named("shm", collective);
}

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOverTcp) {
  for (const auto& collective : collectives()) expect_death_is_named("tcp", collective);
}

TEST(ProcessLaws, ARankKilledInTheMiddleOfAnyCollectiveIsNamedOnTheOtherHostsToo) {
  for (const auto& collective : collectives()) expect_death_is_named("mixed", collective);
}

TEST(ProcessLaws, WaitingRanksUseNoCpu) {
  for (const std::string transport : {"shm", "tcp", "mixed"}) {
    Ranks ranks(4, transport, [](Communicator& comm) -> std::string {
      if (comm.rank().value == 0) usleep(600'000);
      comm.barrier();
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      const auto before = static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6 +
                          static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
      if (comm.rank().value == 0) usleep(1'000'000);
      comm.barrier();
      getrusage(RUSAGE_SELF, &used);
      const auto after = static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6 +
                         static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
      return after - before < 0.05 ? "idle" : fmt::format("{} s of CPU in a wait of 1 s", after - before);
    });
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(ranks.read_line(r), "ready");
      EXPECT_EQ(ranks.read_line(r), "idle") << transport << " rank " << r;
    }
  }
}

TEST(ProcessLaws, MoreThan4294967296ElementsAreReducedInPlaceAndStaged) {
  Ranks ranks(2, "shm", [](Communicator& comm) -> std::string {
    constexpr std::size_t kCount = (std::size_t{1} << 32) + 12'345;
    const Region region = comm.allocate(kCount);
    const auto values = region.as<std::uint8_t>();
    for (const std::string_view algorithm : {"zero_copy", "staged"}) {
      for (const std::size_t at : {std::size_t{0}, kCount / 2, (std::size_t{1} << 32) - 1, std::size_t{1} << 32, kCount - 1})
        values[at] = static_cast<std::uint8_t>(10 + comm.rank().value);
      comm.all_reduce(piece(values), Op::sum, {.algorithm = algorithm});
      for (const std::size_t at : {std::size_t{0}, kCount / 2, (std::size_t{1} << 32) - 1, std::size_t{1} << 32, kCount - 1})
        if (values[at] != 21) return fmt::format("{}: element {} is {}", algorithm, at, values[at]);
      if (values[1] != 0 || values[kCount - 2] != 0) return "a zero changed";
    }
    return "right";
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.read_line(r), "ready");
    EXPECT_EQ(ranks.read_line(r), "right");
  }
}

}  // namespace cohort::collective
