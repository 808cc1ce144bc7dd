#include "cohort/base/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <thread>

namespace cohort {

void futex_wait(const Word& word, std::uint32_t expected, Deadline deadline) {
  timespec relative{};
  timespec* timeout = nullptr;
  if (!deadline.never()) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.left()).count();
    relative = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    timeout = &relative;
  }
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout, nullptr, 0);
}

void futex_wake(const Word& word, int waiters) { syscall(SYS_futex, &word, FUTEX_WAKE, waiters, nullptr, nullptr, 0); }

SpinPolicy SpinPolicy::for_ranks(int ranks_on_host) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1) cores = CPU_COUNT(&allowed);
  if (ranks_on_host <= cores) return {};
  return {.pauses = 20, .yields = 50};  // the rank we wait for may need this very core
}

namespace {
constexpr Seconds kSlice{0.0005};  // no rank that waits keeps a core for so long
constexpr Seconds kCrowded{0.1};   // how long not to try again: a slice of 4 ms now and then costs 4 %
std::atomic<Clock::time_point> crowded_until{Clock::time_point{}};
}  // namespace

bool yield_core() {
  const auto before = Clock::now();
  if (before < crowded_until.load(std::memory_order_relaxed)) return false;
  sched_yield();
  const auto after = Clock::now();
  if (after - before > kSlice)
    crowded_until.store(after + std::chrono::duration_cast<Clock::duration>(kCrowded), std::memory_order_relaxed);
  return true;
}

void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace cohort
