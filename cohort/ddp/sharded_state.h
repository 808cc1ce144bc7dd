// Sharded::save() and load(): a module, the optimizer's state and the count of updates, in the format of Trainer's checkpoints
// (checkpoint/store.h), written by all ranks together and read by any number of ranks at any stage.
// Owner: Sharded. Threads: one; both are collectives. Failure: on all ranks, naming the first that failed. A save that fails leaves the
// checkpoints before; a load that is refused because something does not fit has changed nothing.
#pragma once
#include <optional>
#include <string>

#include "cohort/engine/engine.h"

namespace torch::nn {
class Module;
}

namespace cohort::ddp {

struct ShardedState {
  collective::Communicator& comm;
  engine::Engine& core;
  torch::nn::Module& module;
  std::string groups;  // the parameter groups, as JSON
};

std::string save_state(const ShardedState& state, const std::string& folder, std::int64_t updates, int keep);
std::optional<std::int64_t> load_state(const ShardedState& state, const std::string& folder);

}  // namespace cohort::ddp
