// From here to end() a model has the averages that its rule keeps of the parameters (optimizer: ema, swa) in the place of the parameters,
// which lie where the averages were. Nothing is copied. Where the rule keeps none, or says evaluate=last, nothing happens.
// Collective to make and to end, between two steps. Owner: who evaluates. Threads: one. Failure: the communicator's. A pass that fails
// in between leaves through the destructor, which puts back what this rank holds of the parameters, without the other ranks.
#pragma once
#include "cohort/engine/engine.h"

namespace cohort::train {

class AveragedWeights {
 public:
  explicit AveragedWeights(engine::Engine& engine, bool any = true);  // any: there were updates, of which there are averages
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;
  void end();

 private:
  void change_places();
  engine::Engine& engine_;
  bool changed_ = false;
};

}  // namespace cohort::train
