#include "cohort/base/futex.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <thread>

namespace cohort {
namespace {

void wait_for(const Word& word, std::uint32_t value, Deadline deadline) {
  for (auto seen = word.load(); seen != value && !deadline.passed(); seen = word.load()) futex_wait(word, seen, deadline);
}

TEST(Futex, AChangedWordIsNotWaitedFor) {
  const Word word{1};
  futex_wait(word, 0, Deadline{});  // would sleep for ever if the value were not compared
  SUCCEED();
}

TEST(Futex, ADeadlineEndsTheWait) {
  const Word word{0};
  const auto deadline = Deadline::in(20ms);
  wait_for(word, 1, deadline);
  EXPECT_TRUE(deadline.passed());
  futex_wait(word, 0, deadline);  // one that has passed already returns at once
}

TEST(Futex, WakeReachesEverySleeper) {
  Word word{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) sleepers.emplace_back([&] { wait_for(word, 1, Deadline::in(30s)); });
  const auto start = Clock::now();
  word = 1;
  futex_wake(word, INT_MAX);
  for (auto& sleeper : sleepers) sleeper.join();
  EXPECT_LT(Clock::now() - start, 20s);
}

// Two threads on one core, one of which computes: a yield costs the other's time slice once, then the waiter is to sleep.
TEST(Futex, YieldingEndsWhereAnotherComputes) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over{false};
  std::thread busy([&] {  // inherits the core
    while (!over.load()) {
    }
  });
  const auto deadline = Deadline::in(30s);
  while (yield_core() && !deadline.passed()) {
  }
  over = true;
  busy.join();
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_FALSE(deadline.passed());
}

TEST(FutexProcess, WakesAcrossProcesses) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* words = new (shared) Word[2]{};
  const pid_t child = fork();
  if (child == 0) {
    wait_for(words[0], 1, Deadline::in(30s));
    words[1] = words[0].load() + 1;
    futex_wake(words[1], INT_MAX);
    _exit(0);
  }
  words[0] = 1;
  futex_wake(words[0], INT_MAX);
  wait_for(words[1], 2, Deadline::in(30s));
  EXPECT_EQ(words[1].load(), 2U);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(shared, 4096);
}

TEST(SpinPolicy, SpinsLessWhenRanksShareCores) {
  const auto idle = SpinPolicy::for_ranks(1);
  const auto crowded = SpinPolicy::for_ranks(100'000);
  EXPECT_LT(crowded.pauses, idle.pauses);
  EXPECT_GT(crowded.yields, 0);
  cpu_pause();
}

}  // namespace
}  // namespace cohort
