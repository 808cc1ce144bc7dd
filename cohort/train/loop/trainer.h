// A whole training run from a configuration: what `cohort train` does, for programs of one's own.
//   cohort::Job job = cohort::init();
//   cohort::TrainConfig config;  config.model = "cnn";  config.epochs = 3;
//   cohort::RunSummary summary = cohort::Trainer(job, config).run();        // collective: every rank calls it
// With a module and data of one's own: model_and_data.h, nn/own_model.h, nn/own_dataset.h; docs/own_models.md.
// Resumes from the newest checkpoint in the run's folder unless the settings say otherwise. Owner: the caller. Threads: one; leave() from
// any. Failure: Kind::usage before the first step; a lost rank ends run() on the others with its name, and the run resumes from its last
// checkpoint when started again.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cohort/job/job.h"
#include "cohort/train/loop/checkpoint_manager.h"
#include "cohort/train/loop/rank_status.h"
#include "cohort/train/loop/run_logger.h"

namespace cohort::train {

// The effective settings as YAML, without the remarks that say where each came from.
std::string bare_yaml(TrainConfig& config);
std::string shared_yaml(TrainConfig config);  // the part that must be the same on all ranks: each may have its own number of threads

class Trainer {
 public:
  // status: kept up to date with what this rank does (rank_status.h); must outlive the Trainer, which observes the communicator for it.
  Trainer(Job& job, TrainConfig config, RankStatus* status = nullptr);
  Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, RankStatus* status = nullptr);
  // With a model, data and a loss of the program's own; of the settings `model`, `data.train` and `data.test` then mean nothing.
  Trainer(Job& job, TrainConfig config, ModelAndData own, RankStatus* status = nullptr);
  Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, ModelAndData own, RankStatus* status = nullptr);

  // Called after each step, before replicas are compared and checkpoints written.
  void after_step(std::function<void(TrainLoop&)> call) { after_step_ = std::move(call); }
  // Asks for an early end with a checkpoint: all ranks end after the same step, this one or the next. why: "SIGUSR1". Any rank may call.
  void leave(const std::string& why);
  RunSummary run();
  TrainLoop& loop() { return *loop_; }

 private:
  Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, std::optional<ModelAndData> own,
          RankStatus* status);
  void train_epoch(RunLogger& logger, CheckpointManager& checkpoints, Evaluation& test);
  bool save_and_wait(CheckpointManager& checkpoints);  // collective: whether it is on disk
  std::string leaving_text(bool saved);                // collective: which rank was told to leave, and what is left of the run

  RankStatus own_status_;
  RankStatus& status_;
  collective::Communicator& comm_;
  const ScopedObservation observed_;  // before loop_: the engine's threads end first
  TrainConfig config_;
  std::string config_text_;
  std::unique_ptr<TrainLoop> loop_;
  std::function<void(TrainLoop&)> after_step_;
  bool leaves_ = false;  // the last vote said so, and there are steps left
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_: why this rank leaves; empty: it was not told to
};

}  // namespace cohort::train

namespace cohort {
using nn::Metric;
using nn::Objective;
using train::Evaluation;
using train::ModelAndData;
using train::RunSummary;
using train::Trainer;
}  // namespace cohort
