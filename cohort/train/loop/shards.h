// Shards: what one rank holds of parameters and optimizer state where no rank holds all (ZeRO), carried from one roster of an elastic job
// to the next, whose ranks own other pieces.
//   Shards mine = take_shards(engine);            // own pieces, and those kept for the rank before (buddy copies)
//   hand_over(comm, mine, learner, leaving);      // collective, before some leave: each gives its own to the next rank that stays
//   Origin from = lay_out(comm, mine, learner);   // collective of the new roster: every engine gets what it owns now
// Which piece comes from whom: shard_plan.h. Every piece is broadcast, tensor by tensor: all ranks see all of the state go
// by once, and need room for the largest tensor beside their own part.
// Owner: ElasticTrainer. Threads: one. Failure: as the communicator's; Kind::bug when nobody has a piece.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cohort/train/loop/learner.h"
#include "cohort/train/loop/shard_plan.h"

namespace cohort {

struct Shard {
  std::string parameter, state;  // state "": the parameter itself
  std::int64_t first = 0;        // element
  at::Tensor values;             // flat
  ShardSource source = ShardSource::own;
};
using Shards = std::vector<Shard>;

Shards take_shards(const engine::Engine& engine);

// mine: grows by what this rank is given.
void hand_over(collective::Communicator& comm, Shards& mine, Learner& learner, std::span<const std::int32_t> leaving);

// Where elements came from, over all ranks.
struct Origin {
  std::int64_t own = 0, handed = 0, kept = 0;
};
bool has_all(const Shards& mine, Learner& learner);  // one rank alone could lay it out
Origin lay_out(collective::Communicator& comm, const Shards& mine, Learner& learner);

}  // namespace cohort
