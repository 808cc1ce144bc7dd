// A whole training run from a configuration: what `cohort train` does, for programs of one's own.
//   cohort::Job job = cohort::init();
//   cohort::TrainConfig config;  config.model = "cnn";  config.epochs = 3;
//   cohort::RunSummary summary = cohort::Trainer(job, config).run();        // collective: every rank calls it
// Goes on from the newest checkpoint in the run's folder unless told otherwise. Owner: the caller. Threads: one; leave() from any. Failure:
// Kind::usage before the first step; a lost rank ends run() on the others with its name, and the run goes on from its last checkpoint when
// started again.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cohort/train/job.h"
#include "cohort/train/loop/chronicle.h"
#include "cohort/train/loop/keeper.h"

namespace cohort {

// The effective settings without remarks: where they came from is the launcher's knowledge.
std::string bare_yaml(TrainConfig& config);
std::string shared_yaml(TrainConfig config);  // the part that ranks must agree on: how many threads one has is its own affair

class Trainer {
 public:
  // where: kept up to date with what this rank does (whereabouts.h); must outlive the Trainer.
  Trainer(Job& job, TrainConfig config, Whereabouts* where = nullptr);
  Trainer(collective::Communicator& comm, TrainConfig config, int cores, int ranks_here, Whereabouts* where = nullptr);

  // Called after each step, before replicas are compared and checkpoints written.
  void after_step(std::function<void(Learner&)> call) { after_step_ = std::move(call); }
  // The run is to end early, with a checkpoint: all ranks end after the same step, this one or the next. why: "SIGUSR1"; on any of them.
  void leave(const std::string& why);
  RunSummary run();
  Learner& learner() { return *learner_; }

 private:
  void train_epoch(Chronicle& chronicle, Keeper& keeper, Evaluation& test);
  void save_and_wait(Keeper& keeper);
  std::string leaving_text(bool saved);  // collective: who was told to, and what is left of the run

  Whereabouts own_where_;
  Whereabouts& where_;
  const std::unique_ptr<collective::Communicator> watched_;
  collective::Communicator& comm_;
  TrainConfig config_;
  std::string config_text_;
  std::unique_ptr<Learner> learner_;
  std::function<void(Learner&)> after_step_;
  bool leaves_ = false;  // the last vote said so, and there are steps left
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_: why this rank leaves; empty: nobody has told it to
};

}  // namespace cohort
