// EmergencySave: a rank is lost, and the survivors save the state of all ranks, that of the lost one from its buddy copy
// (sync/bucket_buddy.cc). Their communicator has failed, so they coordinate through files in the folder of checkpoints, as in any sharded
// save (checkpoint/sharded_save.h):
//   1 each writes its SurvivorState: the last step whose vote it knows, and the vote's result
//   2 a rank without the result of a vote that another has finishes that step alone: its own shard and its buddy copy, no communication
//   3 all write their shards of that step, the buddy those of the lost rank too: one checkpoint, complete when the last part is written
// Started again, the run resumes from it: no step is computed twice but one that no survivor knew the vote of. Owner: CheckpointManager.
// Threads: one. Failure: Kind::timeout naming ranks that did not come (a second one is lost), Kind::system of the disk; older checkpoints
// stay.
#pragma once
#include <functional>

#include "cohort/base/folder.h"
#include "cohort/checkpoint/store.h"
#include "cohort/train/loop/state_io.h"

namespace cohort::train {

// How far a survivor has come.
struct SurvivorState {
  std::int64_t step = 0;        // the last one that was decided
  bool undecided = false;       // the next step has come to its vote, whose result did not arrive
  engine::Decision decision{};  // of `step`
};

std::string format_survivor_state(const SurvivorState& state);
SurvivorState parse_survivor_state(const std::string& text, const std::string& where);  // Kind::corrupt
// The state that all can reach. Kind::bug when one cannot.
SurvivorState furthest(std::span<const SurvivorState> states);

// Rank 0, once per start of the run: a number for the folder to coordinate in; folders of earlier starts are removed.
std::int64_t new_rendezvous(const std::string& folder, int own);

class EmergencySave {
 public:
  // own: parts of the folder's path that are no links (base/folder.h).
  EmergencySave(Survivor survivor, std::string folder, int own, std::int64_t rendezvous);
  void agree_on_step(TrainLoop& loop);  // 1 and 2
  checkpoint::Checkpoint save(TrainLoop& loop, const std::function<void(checkpoint::Manifest&)>& describe,
                              const checkpoint::StoreOptions& store);  // 3

 private:
  std::string await_file(const std::string& name, int from) const;

  Survivor survivor_;
  const std::string folder_;
  const int own_;
  const std::string rendezvous_name_;
  const Folder rendezvous_;
  std::vector<int> survivors_;
  const Deadline deadline_;
};

}  // namespace cohort::train
