// The Keeper saves a run and brings it back: parameters, buffers, optimizer state, position. Rank 0 writes, in the background; all ranks
// hold the same values, so any number of ranks can go on from them (another number shares the rest of the epoch out anew). Layout:
// model.safetensors (parameters and buffers, loads anywhere), optimizer.safetensors ("<parameter>/<state>"), manifest.json. Owner: Trainer.
// Threads: one. Failure: restore() throws, on all ranks; a save that fails (full disk) is reported and training goes on.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint/writer.h"
#include "cohort/train/loop/learner.h"

namespace cohort {

class Keeper {
 public:
  Keeper(collective::Communicator& comm, Learner& learner, const TrainConfig& config, std::string config_text);

  // The step it went on from. Loud about damaged checkpoints that it passed over. On every rank, the same answer.
  std::optional<std::int64_t> restore();
  void save_if_due(bool epoch_ended);                                        // after a step
  void save();                                                               // now; every rank calls it
  void finish();                                                             // waits for the save in flight, bounded
  bool saved() const { return !writer_ || saved_step_ == learner_.step(); }  // what was learned last is on disk
  const std::string& folder() const { return folder_; }

 private:
  checkpoint::Snapshot snapshot();
  void find(std::span<std::int64_t> where);  // rank 0: reads the newest whole checkpoint; step, epoch, samples of the epoch
  void note(const checkpoint::Outcome& outcome);

  collective::Communicator& comm_;
  Learner& learner_;
  const TrainConfig config_;
  const std::string config_text_, folder_;
  std::unique_ptr<checkpoint::Store> store_;    // rank 0
  std::unique_ptr<checkpoint::Writer> writer_;  // rank 0
  std::int64_t last_saved_ = -1;                // rank 0: the step of the newest checkpoint that is written or being written
  std::int64_t saved_step_ = -1;                // rank 0: of the newest that is whole on disk
};

// Parameters and buffers of a model from a checkpoint folder: for predictions. Kind::usage naming the first tensor that does not fit.
void load_model(const nn::Model& model, const checkpoint::Checkpoint& found);

}  // namespace cohort
