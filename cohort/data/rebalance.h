// How a changed set of ranks goes on within an epoch of the data: every sample exactly once, whoever joins or leaves.
// The rule: the order of an epoch depends on seed and epoch alone, never on ranks. Committed steps have taken its first `taken` samples,
// whoever took them; what is left is cut anew into global batches of the new number of ranks (plan.h). So Progress is all that a joining
// rank needs to know, it is part of every commit, and a step that was not committed has taken nothing.
// Owner: values. Threads: any, pure functions. Failure: Kind::usage for shares that cannot be.
#pragma once
#include <cstdint>

#include "cohort/data/plan.h"

namespace cohort::data {

struct Progress {
  std::int64_t epoch = 0;
  std::int64_t taken = 0;  // samples of this epoch that committed steps took, over all ranks
  bool operator==(const Progress&) const = default;
};

// What this rank of the new membership does next: plan(share, progress.epoch), from step 0 of it. share: as before, with any ranks; rank
// and ranks are replaced. Progress that leaves nothing to do in its epoch is moved to the next one.
struct RebalancedShare {
  Share share;
  Progress progress;
};
RebalancedShare rebalance(Share share, Progress progress, int rank, int ranks);

// After one more committed step of that share.
Progress after_step(const Share& share, Progress progress);

}  // namespace cohort::data
