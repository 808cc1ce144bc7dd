// The Keeper saves a run and brings it back: parameters, buffers, optimizer state, position. It writes in the background. Where all ranks
// hold the same values rank 0 writes (model.safetensors, optimizer.safetensors, manifest.json); where the engine shards, every rank writes
// what it owns, all into one checkpoint, which is there when the last part is (checkpoint/party.h). Any number of ranks at any stage can go
// on from either (another number shares the rest of the epoch out anew). Owner: Trainer. Threads: one. Failure: restore() throws, on all
// ranks; a save that fails (full disk) is reported, on all ranks that had a part in it, and training goes on.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint/writer.h"
#include "cohort/train/loop/stowage.h"

namespace cohort {

namespace checkpoint {
class Workshop;
}

class Keeper {
 public:
  // mine: of an elastic job, which epoch saves; restore() keeps those of earlier ones from doing so (checkpoint/fence.h).
  Keeper(collective::Communicator& comm, Learner& learner, const TrainConfig& config, std::string config_text, checkpoint::Fence mine = {});

  // The step it went on from. Loud about damaged checkpoints that it passed over. On every rank, the same answer.
  std::optional<std::int64_t> restore();
  void save_if_due(bool epoch_ended);  // after a step
  void save();                         // now; every rank calls it
  // Waits for the save in flight, bounded. given_up: set by another thread when there is nobody left to wait for: Kind::aborted.
  void finish(const std::atomic<bool>* given_up = nullptr);
  // With buddy copies, after a rank was lost (`why` names it): the survivors save what all of them and the lost one had. Where it lies, or
  // nothing, and the log says why. Not a collective: ranks meet in the folder.
  std::optional<checkpoint::Checkpoint> rescue(const Error& why);
  // A save in flight does not wait for these ranks any more. Not a collective.
  void call_off(std::span<const Rank> lost) noexcept;
  bool saved() const { return !writer_ || saved_step_ == learner_.step(); }  // what was learned last is on disk
  const std::string& folder() const { return folder_; }

 private:
  struct Errand;
  checkpoint::Snapshot snapshot();
  void describe(checkpoint::Manifest& m) const;
  checkpoint::Writer::Save save_with_others() const;
  void save_alone();
  void save_together();
  std::unique_ptr<checkpoint::Workshop> open_workshop();  // rank 0: where this save grows; none: no save now
  void find(std::span<std::int64_t> where);               // rank 0: the newest whole checkpoint; step, epoch, samples of the epoch
  void note(const checkpoint::Outcome& outcome);
  void note_skipped();

  collective::Communicator& comm_;
  Learner& learner_;
  const TrainConfig config_;
  const std::string config_text_, folder_;
  const checkpoint::Fence mine_;
  const bool sharded_;                          // every rank has a part in every save
  const std::set<std::string> in_pieces_;       // parameters of which no rank holds all
  const std::shared_ptr<Errand> errand_;        // the save in flight, shared with the thread that writes
  std::unique_ptr<checkpoint::Store> store_;    // rank 0
  std::unique_ptr<checkpoint::Writer> writer_;  // rank 0; with sharding every rank
  std::int64_t meeting_ = 0;                    // the same on every rank, of this start of the run only
  std::string in_flight_;                       // the folder of the save that may be under way
  checkpoint::Checkpoint found_;                // what restore() goes on from
  std::int64_t last_saved_ = -1;                // the step of the newest checkpoint that is written or being written
  std::int64_t saved_step_ = -1;                // of the newest that is whole on disk
  int skipped_ = 0;                             // saves in a row that were left out, the disk being busy with an older one
};

}  // namespace cohort
