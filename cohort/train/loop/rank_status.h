// RankStatus: what a rank is doing: its step, the phase it is in and since when, and the operations of its communicator that are under way.
// Written by the training loop (a few words a step) and, as the communicator's observer, by every operation; read by whoever wants to know
// why nothing moves: SIGQUIT to `cohort train` prints it for every rank.
// Owner: the program, one per rank. Threads: any. Failure: none.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/collective/communicator.h"

namespace cohort::train {

class RankStatus final : public collective::OperationObserver {
 public:
  void set_phase(const char* phase);  // a literal: it is kept, not copied
  void step(std::int64_t number, std::int64_t of);
  void begin(const collective::RunningOperation& operation) noexcept override;
  void end(const collective::RunningOperation& operation) noexcept override;
  // "step 12 of 400, forward and backward for 1.2 s; in all_reduce 'bucket 0 (..)', 25 MiB, for 0.3 s"
  std::string text() const;

 private:
  struct Running {
    const collective::RunningOperation* operation;  // which one, while it runs
    Clock::time_point since;
  };
  mutable std::mutex mutex_;  // guards everything
  const char* phase_ = "starting";
  Clock::time_point since_ = Clock::now();
  std::int64_t step_ = 0, of_ = 0;
  std::vector<Running> running_;  // in the order in which they began
};

// While it lives the status shows the operations of this communicator and of its children. To be destroyed after whatever runs operations
// on a thread of its own (an engine), and before the communicator and the status.
class ScopedObservation {
 public:
  ScopedObservation(collective::Communicator& comm, RankStatus& status) : comm_(comm) { comm_.observe(&status); }
  ~ScopedObservation() { comm_.observe(nullptr); }
  ScopedObservation(const ScopedObservation&) = delete;
  ScopedObservation& operator=(const ScopedObservation&) = delete;

 private:
  collective::Communicator& comm_;
};

}  // namespace cohort::train
