// Buddy copies: what only one rank has, its optimizer state and in ZeRO 3 its parameters, is held by the next rank too. Not by sending it
// after every update but by repeating the update there, from the same reduced gradients, which are sent before the step's vote. So at every
// moment there is enough to finish a step or to have never begun it without the rank that is lost:
//   before the vote  no rank has changed anything; buddy copies are those of the step before, whole
//   after the vote   a rank that got its result can update its own piece and the buddy copy alone (engine.h, finish_step_alone)
// Sent are 1/N of the gradients a step more; sending state would be two to three times that, and a rank that dies in the middle of it
// would leave its buddy half of each.
// Owner: Bucket. Threads: as the bucket's. Failure: the communicator's; Kind::usage to restore without copies.
#pragma once
#include <vector>

#include "cohort/optim/optimizer.h"
#include "cohort/sync/slot.h"

namespace cohort::sync {

class Bucket;
struct Member;

class Buddy {
 public:
  explicit Buddy(const Bucket& bucket) : bucket_(bucket) {}
  void allocate();  // where the placement has buddies; parameters without values
  bool here() const;

  Range range(const Member& m) const;                     // of one tensor, counted from its own first element
  Piece parameter(const Member& m) const;                 // of the rank before this one
  Piece state(const Member& m, std::size_t which) const;  // the same elements; of another shape all
  optim::Slice slice(const Member& m, std::vector<void*>& state) const;
  void send(collective::Communicator& comm) const;          // collective, after the step's last mark_reduced(): the gradients for it
  void copy(collective::Communicator& comm) const;          // collective: all of it, where values came from elsewhere
  void restore(collective::Communicator& comm, Rank lost);  // collective: the rank after `lost` sends it the copy

 private:
  Range piece() const;  // of the rank before this one, in the flat memory
  const Slot& parameters() const;
  Piece run() const;  // of state whose tensors are not cut, and what this rank owns of it
  Piece own_run() const;

  const Bucket& bucket_;
  std::vector<Slot> slots_;  // Bucket::unreplicated() of the rank before this one
  Slot run_;                 // likewise Bucket::run_
  Slot grads_;               // and its reduced gradients
};

}  // namespace cohort::sync
