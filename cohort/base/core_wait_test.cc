#include "cohort/base/core_wait.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cohort/base/deadline.h"

namespace cohort {
namespace {

void burn(double seconds) {  // of the steady clock
  for (const auto start = Clock::now(); Seconds(Clock::now() - start).count() < seconds;) {
  }
}

// Two threads on one core: each has it for half of the time, and the rest is what is counted.
TEST(CoreWait, CountsTheTimeThatAnotherThreadHasTheOnlyCore) {
  cpu_set_t before, one;
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  const CoreWait cores;
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> stop{false};
  std::thread rival([&] {  // inherits the core
    while (!stop) burn(0.001);
  });
  const double start = cores.seconds();
  burn(0.3);
  const double waited = cores.seconds() - start;
  stop = true;
  rival.join();
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  if (access("/proc/thread-self/schedstat", R_OK) != 0) {
    EXPECT_EQ(waited, 0) << "a kernel that does not count";
    return;
  }
  EXPECT_GT(waited, 0.05);
  EXPECT_LT(waited, 30);
}

}  // namespace
}  // namespace cohort
