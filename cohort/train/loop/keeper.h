// The Keeper saves a run and brings it back: parameters, buffers, optimizer state, position. Rank 0 writes, in the background; all ranks
// hold the same values, so any number of ranks can go on from them (with another number the samples of a step differ). Layout:
// model.safetensors (parameters and buffers, loads anywhere), optimizer.safetensors ("<parameter>/<state>"), manifest.json. Owner: Trainer.
// Threads: one. Failure: restore() throws; a save that fails (full disk) is reported and training goes on.
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
  void save_if_due(bool epoch_ended);  // after a step
  void save();                         // now; every rank calls it
  void finish();                       // waits for the save in flight, bounded
  const std::string& folder() const { return folder_; }
  std::int64_t last_saved() const { return last_saved_; }

 private:
  void read(const checkpoint::Checkpoint& found);
  void report();

  collective::Communicator& comm_;
  Learner& learner_;
  const TrainConfig config_;
  const std::string config_text_, folder_;
  std::unique_ptr<checkpoint::Store> store_;    // rank 0
  std::unique_ptr<checkpoint::Writer> writer_;  // rank 0
  std::int64_t last_saved_ = -1;
};

// Parameters and buffers of a model from a checkpoint folder: for predictions. Kind::usage naming the first tensor that does not fit.
void load_model(const nn::Model& model, const checkpoint::Checkpoint& found);

}  // namespace cohort
