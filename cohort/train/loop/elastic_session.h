// What an ElasticTrainer has for one epoch of its job. For elastic_*.cc alone.
#pragma once
#include "cohort/train/loop/elastic_trainer.h"

namespace cohort {

struct ElasticTrainer::Session {
  std::unique_ptr<collective::Communicator> own, comm;  // comm: the same, watched
  group::Roster roster;
  std::unique_ptr<Learner> learner;
  bool ready = false;  // the learner has the state
  std::unique_ptr<Keeper> keeper;
  std::unique_ptr<Chronicle> chronicle;
};

}  // namespace cohort
