// What an engine offers to its rule while a step is prepared (optim/side.h): its tap on the layers, its communicator, its threads.
// Owner: Engine. Threads: the one that trains. Failure: the communicator's; Kind::usage when no layer was seen though backward ran.
#pragma once
#include <memory>
#include <vector>

#include "cohort/collective/communicator.h"
#include "cohort/engine/update.h"
#include "cohort/nn/tap.h"
#include "cohort/optim/side.h"

namespace cohort::engine {

class EngineSide final : public optim::Side {
 public:
  EngineSide(collective::Communicator& comm, const nn::NamedTensors& parameters) : comm_(comm), tap_(parameters) {}

  nn::Tap& tap() { return tap_; }
  void prepare(optim::Optimizer& rule, const optim::StepInfo& step, bool had_gradients);

  int ranks() const override { return comm_.size(); }
  const optim::StepInfo& step() const override { return step_; }
  std::span<const optim::TappedLayer> layers() override { return layers_; }
  void sum(const Piece& values) override;
  void spread(std::span<const optim::Job> jobs) override;
  const Algebra& algebra() const override { return thread_algebra(); }
  BackgroundPool& background() override { return background_; }

 private:
  collective::Communicator& comm_;
  nn::Tap tap_;
  optim::StepInfo step_;
  std::vector<optim::TappedLayer> layers_;  // of this step
  BackgroundPool background_;
};

}  // namespace cohort::engine
