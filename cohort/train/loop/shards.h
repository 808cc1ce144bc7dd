// Shards: what one rank holds of parameters and optimizer state where no rank holds all (ZeRO), carried from one roster of an elastic job
// to the next, whose ranks own other pieces.
//   Shards mine = collect_shards(engine);                 // own pieces, and the buddy copies of the previous rank's
//   transfer_shards(comm, mine, loop, leaving);           // collective, before some leave: each sends its own to the next rank that stays
//   ShardOrigins from = redistribute(comm, mine, loop);   // collective of the new roster: every engine gets what it owns now
// Which piece comes from which rank: shard_plan.h. Every piece is broadcast, tensor by tensor: all ranks receive all of the state once, and
// need memory for the largest tensor beside their own part.
// Owner: ElasticTrainer. Threads: one. Failure: as the communicator's; Kind::bug when no rank has a piece.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cohort/train/loop/shard_plan.h"
#include "cohort/train/loop/train_loop.h"

namespace cohort::train {

struct Shard {
  std::string parameter, state;  // state "": the parameter itself
  std::int64_t first = 0;        // element
  at::Tensor values;             // flat
  ShardSource source = ShardSource::owner;
};
using Shards = std::vector<Shard>;

Shards collect_shards(const engine::Engine& engine);

// mine: what this rank receives is appended.
void transfer_shards(collective::Communicator& comm, Shards& mine, TrainLoop& loop, std::span<const std::int32_t> leaving);

// Where elements came from, over all ranks.
struct ShardOrigins {
  std::int64_t owner = 0, transferred = 0, buddy = 0;
};
bool has_all(const Shards& mine, TrainLoop& loop);  // one rank alone has every element
ShardOrigins redistribute(collective::Communicator& comm, const Shards& mine, TrainLoop& loop);

}  // namespace cohort::train
