// A worker's side of the commit protocol: when it may vote, when a step counts, and the progress it reports when the epoch ends. Pure: no
// clock, no socket, no thread of its own. docs/adr/0009-membership.md says why this is safe.
//
//   outside --welcome--> settling --settled--> open --prepare--> prepared --decide--> open ...
//                                               any of these --seal--> sealed --welcome (of a later epoch)--> settling
//
// A training loop:
//   if (!commit.prepare()) stop;              // all reduced gradients are here: from now on this worker can finish the step alone
//   vote over all ranks;                      // fails: seal(), report, wait for the next epoch
//   if (commit.decide()) update;              // all ranks voted
// Owner: a worker. Threads: guarded by the caller (a control thread seals while the training thread prepares). Failure: Kind::bug for
// calls out of order.
#pragma once
#include <cstdint>
#include <optional>

#include "cohort/base/ids.h"

namespace cohort::elastic {

// How far a worker's state is: parameters after step `applied`, reached in or before `epoch`.
struct WorkerProgress {
  Epoch epoch;
  std::int64_t applied = 0;
  bool prepared = false;  // it holds all that step applied + 1 needs
  std::int64_t reach() const { return applied + (prepared ? 1 : 0); }
  bool operator==(const WorkerProgress&) const = default;
};

// How a member of a new epoch obtains its first state.
enum class StateRecovery {
  stay,     // it has it
  finish,   // it finishes the step it was prepared for, alone
  discard,  // it drops the step it was prepared for
  heal,     // it receives the state from a peer
  disk,     // it reads the newest checkpoint, or begins at step 0
};

class StepCommit {
 public:
  enum class Phase { outside, settling, open, prepared, sealed };

  // Whether a coordinator's message counts: not one from an earlier term or about an earlier epoch.
  bool accepts(std::uint64_t term, Epoch epoch) const { return term >= term_ && epoch >= epoch_; }
  // Enters an epoch. base: the step to continue from; none: from disk. Kind::bug when it cannot be reached from here.
  StateRecovery welcome(std::uint64_t term, Epoch epoch, std::optional<std::int64_t> base, bool heals);
  void settled(std::int64_t applied);  // the state after this step is here; training may begin
  bool prepare();                      // false: sealed; the vote must not be sent
  bool decide();                       // all have voted: the step counts, update now. False: sealed; the next epoch decides
  // No vote is sent from here on. The progress to report; none: no state yet.
  std::optional<WorkerProgress> seal();
  void outside();  // evicted: the state no longer counts

  Phase phase() const { return phase_; }
  Epoch epoch() const { return epoch_; }  // the last one that it entered
  std::uint64_t term() const { return term_; }
  std::optional<WorkerProgress> worker_progress() const { return progress_; }
  // Whether files and metrics of this epoch may be written. A store must check the epoch too (checkpoint/fence.h): a worker that was
  // paused cannot know that the epoch has ended.
  bool may_write(Epoch epoch) const { return epoch == epoch_ && (phase_ == Phase::open || phase_ == Phase::prepared); }

 private:
  Phase phase_ = Phase::outside;
  std::uint64_t term_ = 0;
  Epoch epoch_;
  std::optional<WorkerProgress> progress_;
};

}  // namespace cohort::elastic
