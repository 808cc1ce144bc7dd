// Waiting on a word of (shared) memory, as every wait here does it: first pause instructions, then sched_yield, then sleep.
// Threads: any, across processes too. A sleeper costs no CPU; whoever changes the word calls wake() when sleepers may exist.
#pragma once
#include <atomic>
#include <cstdint>

#include "cohort/base/deadline.h"

namespace cohort {

using Word = std::atomic<std::uint32_t>;

// Sleeps while word == expected, until woken, the deadline, or a signal. Spurious returns are normal.
void futex_wait(const Word& word, std::uint32_t expected, Deadline deadline);
void futex_wake(const Word& word, int waiters);

// How long to spin before sleeping, chosen once from the ranks on this host and the cores they may use.
struct SpinPolicy {
  int pauses = 2000;  // looks at the word with a pause instruction between them
  int yields = 50;    // then looks with sched_yield between them, so that a rank without a core gets one
  static SpinPolicy for_ranks(int ranks_on_host);
};

void cpu_pause();

// Gives the core to whoever else wants it. A rank that waits too gives it back in a microsecond; somebody who computes keeps it for a whole
// time slice, milliseconds. After one of those this says false for a while and does nothing: then it is time to sleep, for a sleeper that
// is woken gets its core at once.
bool yield_core();

}  // namespace cohort
