// The state of an ElasticTrainer for one epoch of its job. For elastic_*.cc alone.
#pragma once
#include "cohort/train/loop/elastic_trainer.h"

namespace cohort::train {

struct ElasticTrainer::Session {
  std::unique_ptr<collective::Communicator> comm;
  std::optional<ScopedObservation> observed;  // before loop: the engine's threads end first
  group::Roster roster;
  std::unique_ptr<TrainLoop> loop;
  bool ready = false;  // the loop has the state
  std::unique_ptr<CheckpointManager> checkpoints;
  std::unique_ptr<RunLogger> logger;
};

}  // namespace cohort::train
