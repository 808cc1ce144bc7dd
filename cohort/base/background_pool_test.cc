#include "cohort/base/background_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/failure_of.h"

namespace cohort {
namespace {

TEST(BackgroundPool, OneThreadDoesJobsInTheirOrder) {
  BackgroundPool pool;
  std::vector<int> done;
  BackgroundPool::Ticket last;
  for (int i = 0; i < 50; ++i) last = pool.submit([&done, i] { done.push_back(i); });
  BackgroundPool::wait(last);
  std::vector<int> wanted(50);
  for (int i = 0; i < 50; ++i) wanted[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(done, wanted);
}

TEST(BackgroundPool, SeveralThreadsWorkAtOnce) {
  BackgroundPool pool(3);
  std::latch all(3);
  std::vector<BackgroundPool::Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(pool.submit([&] { all.arrive_and_wait(); }));
  for (const auto& ticket : tickets) BackgroundPool::wait(ticket);
}

TEST(BackgroundPool, WhoWaitsGetsWhatTheJobThrew) {
  BackgroundPool pool;
  const auto ticket = pool.submit([] { throw_failure(Kind::usage, "no root of this matrix"); });
  EXPECT_EQ(failure_of([&] { BackgroundPool::wait(ticket); }).what, "no root of this matrix");
  EXPECT_EQ(failure_of([&] { BackgroundPool::wait(ticket); }).kind, Kind::usage) << "as often as it is asked";
  BackgroundPool::wait(pool.submit([] {}));
}

TEST(BackgroundPool, ItsEndWaitsForWhatHasBegun) {
  std::atomic<bool> done = false;
  {
    BackgroundPool pool;
    std::latch running(1);
    pool.submit([&] {
      running.count_down();
      done = true;
    });
    running.wait();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace cohort
