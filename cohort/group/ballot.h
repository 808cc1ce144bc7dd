// A worker's side of the commit protocol: when it may vote, when a step counts, and what it says when the epoch ends. Pure: no clock, no
// socket, no thread of its own. docs/adr/0009-membership.md says why this is safe.
//
//   outside --welcome--> settling --settled--> open --prepare--> prepared --decide--> open ...
//                                               any of these --seal--> sealed --welcome (of a later epoch)--> settling
//
// A training loop:
//   if (!ballot.prepare()) stop;              // all gradients are agreed upon and held: from here the step can be finished alone
//   vote over all ranks;                      // fails: seal(), report, wait for a welcome
//   if (ballot.decide()) update;              // everybody voted
// Owner: a worker. Threads: guarded by the caller (a control thread seals while the training thread prepares). Failure: Kind::bug for
// calls out of order.
#pragma once
#include <cstdint>
#include <optional>

#include "cohort/base/ids.h"

namespace cohort::group {

// How far a worker's state has come: parameters after step `applied`, reached in or before `epoch`.
struct Standing {
  Epoch epoch;
  std::int64_t applied = 0;
  bool prepared = false;  // it holds all that step applied + 1 needs
  std::int64_t reach() const { return applied + (prepared ? 1 : 0); }
  bool operator==(const Standing&) const = default;
};

// How a member of a new epoch comes to its first state.
enum class Settle {
  stay,     // it is there
  finish,   // it ends the step it was prepared for, alone
  discard,  // it drops the step it was prepared for
  heal,     // it receives the state from a peer
  disk,     // it reads the newest checkpoint, or begins
};

class Ballot {
 public:
  enum class Phase { outside, settling, open, prepared, sealed };

  // A message of a coordinator: from an earlier term, or about an earlier epoch, it is void.
  bool heeds(std::uint64_t term, Epoch epoch) const { return term >= term_ && epoch >= epoch_; }
  // base: the step to go on from; none: from disk. Kind::bug when it cannot be reached from here.
  Settle welcome(std::uint64_t term, Epoch epoch, std::optional<std::int64_t> base, bool heals);
  void settled(std::int64_t applied);  // the state after this step is here; training may begin
  bool prepare();                      // false: sealed; the vote must not leave
  bool decide();                       // all have voted: the step counts, update now. False: sealed; the next welcome says
  // No vote leaves from here on. What to report; none: no state yet.
  std::optional<Standing> seal();
  void outside();  // evicted: the state is worth nothing any more

  Phase phase() const { return phase_; }
  Epoch epoch() const { return epoch_; }  // the last one it was welcomed to
  std::uint64_t term() const { return term_; }
  std::optional<Standing> standing() const { return standing_; }
  // Whether files and metrics may be written in the name of this epoch. A store must ask for the epoch, too: a worker that was paused
  // cannot know what happened meanwhile.
  bool may_write(Epoch epoch) const { return epoch == epoch_ && (phase_ == Phase::open || phase_ == Phase::prepared); }

 private:
  Phase phase_ = Phase::outside;
  std::uint64_t term_ = 0;
  Epoch epoch_;
  std::optional<Standing> standing_;
};

}  // namespace cohort::group
