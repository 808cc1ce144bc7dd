#include "cohort/ps/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cohort/base/failure_of.h"

namespace cohort::ps {
namespace {

TEST(Clock, ATickSaysTheNewLowOnlyWhenItsWorkerAloneWasAtIt) {
  Clock clock(3);
  EXPECT_EQ(clock.tick(0), std::nullopt);
  EXPECT_EQ(clock.tick(0), std::nullopt);
  EXPECT_EQ(clock.tick(2), std::nullopt);
  EXPECT_EQ(clock.tick(1), 1);
  EXPECT_EQ(clock.low(), 1);
  EXPECT_EQ(clock.fastest(), 2);
}

// Thousands of random ticks, joins and leaves beside a map of the workers' clocks.
TEST(Clock, LowIsTheNaiveMinimumWhateverHappens) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
    const int workers = 1 + below(9);
    Clock clock(workers, 3);
    std::map<int, std::int64_t> naive;
    for (int w = 0; w < workers; ++w) naive[w] = 3;
    const auto low = [&] { return std::ranges::min_element(naive, {}, [](const auto& at) { return at.second; })->second; };
    for (int i = 0; i < 300; ++i) {
      const int worker = below(12), what = below(20);
      const std::int64_t before = low();
      std::optional<std::int64_t> risen;
      if (what == 0 && naive.contains(worker) && naive.size() > 1) {
        naive.erase(worker);
        risen = clock.leave(worker);
      } else if (what == 1 && !naive.contains(worker)) {
        naive[worker] = before + below(3);
        clock.join(worker, naive[worker]);
      } else if (naive.contains(worker)) {
        ++naive[worker];
        risen = clock.tick(worker);
      }
      ASSERT_EQ(clock.low(), low()) << "seed " << seed;
      ASSERT_EQ(risen, low() == before ? std::nullopt : std::optional(low())) << "seed " << seed;
      ASSERT_EQ(clock.workers(), static_cast<int>(naive.size())) << "seed " << seed;
      for (const auto& [w, at] : naive) ASSERT_EQ(clock.at(w), at) << "seed " << seed;
    }
  }
}

TEST(Clock, RefusesWorkersThatAreNotThereAndThoseThatWouldHoldOthersBack) {
  Clock clock(2, 5);
  EXPECT_EQ(failure_of([&] { clock.tick(2); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([&] { clock.join(1, 5); }).kind, Kind::usage);
  EXPECT_EQ(failure_of([&] { clock.join(2, 4); }).kind, Kind::usage);
  clock.leave(0);
  EXPECT_EQ(failure_of([&] { clock.tick(0); }).kind, Kind::usage);
}

}  // namespace
}  // namespace cohort::ps
