// Where the optimizer's state lies whose tensors are not cut (optim::Grain::tensor) and may have any shape: all that a rank owns in a
// bucket is one run of bytes, tensor after tensor and state after state, each on a 64-byte boundary. A pure function of the layout. Owner:
// values. Threads: any. Failure: none.
#pragma once
#include <cstddef>
#include <vector>

#include "cohort/optim/optimizer.h"

namespace cohort::sync {

struct StatePlan {
  std::vector<std::vector<std::size_t>> places;  // by tensor and state: its first byte in the run of its owner
  std::vector<std::size_t> bytes;                // by rank: of its run
};

// states, owner: by tensor.
StatePlan plan_state(const std::vector<std::vector<optim::StateSpec>>& states, const std::vector<int>& owner, int ranks);

}  // namespace cohort::sync
