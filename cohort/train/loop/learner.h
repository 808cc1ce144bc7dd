// The Learner is what computes in a training run: model, data and engine, one step or one evaluation at a time.
// Loss and gradient are sums over samples divided by the samples of all ranks, so that n ranks equal one rank with n times the batch, also
// for a short last batch. Dropout and other randomness follow (seed, step, rank) alone: nothing random needs saving.
// Buffers (running statistics) are each rank's own while it trains; agree_on_buffers(), before evaluating and saving, gives all ranks their
// mean, once between two steps. With config.precision forward and backward run under autocast; evaluation is in fp32, as predictions are.
// A step that the vote calls off counts as a step of the run and not as an update of the rule (Adam's bias correction). Owner: Trainer.
// Threads: one. Failure: as the rooms below.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "cohort/base/core_wait.h"
#include "cohort/data/loader.h"
#include "cohort/engine/engine.h"
#include "cohort/nn/batch.h"
#include "cohort/nn/blocks.h"
#include "cohort/observe/phases.h"
#include "cohort/optim/loss_scale.h"
#include "cohort/optim/schedule.h"
#include "cohort/train/loop/materials.h"
#include "cohort/train/loop/recomputing.h"
#include "cohort/train/loop/whereabouts.h"
#include "cohort/train/loop/yardstick.h"

namespace cohort {

struct StepResult {
  double loss = 0;  // mean over the samples of all ranks
  double samples = 0;
  double lr = 0;
  double scale = 1;          // of the loss, in this step
  std::int64_t skipped = 0;  // steps called off so far, this one included
  engine::Verdict verdict;
  observe::PhaseSeconds phases;  // of this rank; what lanes hide behind backward does not count
  // By rank: seconds it computed for a sample, without waiting for anybody; 0: not known. They come with the step's vote.
  std::vector<double> paces;
  bool leaves = false;  // some rank was told to leave (Learner::leave()); likewise
};

struct Evaluation {
  double loss = 0, accuracy = 0;  // exact, over the whole set
  std::int64_t samples = 0;
};

class Learner {
 public:
  Learner(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, Whereabouts& where);
  // Of materials that were gathered before. An elastic job hands them from one epoch's learner to the next (not with sync_batch_norm, which
  // ties the model to a communicator); parameters and buffers are rank 0's then.
  Learner(collective::Communicator& comm, const TrainConfig& config, int cores, int ranks_here, Whereabouts& where, Materials materials);

  data::Position position() const { return position_; }  // of the next step
  std::int64_t samples_taken() const;                    // of the epoch of position(), by all ranks
  std::int64_t step() const { return step_; }            // updates made
  std::int64_t total_steps() const { return total_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t steps_of_epoch(std::int64_t epoch) const;  // of the epoch that another number of ranks began: what was left
  bool done() const { return step_ >= total_; }
  // Before the first step: `step` updates were made, and `samples` of the epoch are gone. When they are no whole number of this run's steps
  // (another number of ranks, another batch) the rest of the epoch is shared out anew.
  void start_at(std::int64_t epoch, std::int64_t samples, std::int64_t step);

  StepResult train_step();
  void leave() noexcept { leaves_ = true; }  // from any thread: all ranks hear of it in the vote of a step, this one or the next
  bool under_way() const { return under_way_.has_value(); }  // a step came to its vote and is not counted yet: something failed
  data::Share share() const { return share_of(config_, train_->size(), comm_.size(), comm_.rank().value); }
  // After a rank was lost: the last step that was decided here, and whether the update of it is still to be counted.
  std::int64_t decided() const { return step_ + (ends_here() ? 1 : 0); }
  // Not a collective: ends the step under way by what its vote said (engine.h), with nobody's help.
  void end_alone(const engine::Decision& decision);
  Evaluation evaluate();  // config.data.test, sharded over the ranks
  // Collective: what all ranks are to hold alike, parameters and buffers they have agreed on, has the same bits (replicas.h). Due every
  // config.check_replicas steps. In stage 3 parameters are in pieces, which nobody else has. Kind::corrupt on all ranks; diverged() then.
  void compare_replicas();
  bool has_replicas() const { return comm_.size() > 1 && !replicas().empty(); }
  bool diverged() const { return diverged_; }
  void compare_replicas_if_due() {
    if (config_.check_replicas > 0 && step_ % config_.check_replicas == 0) compare_replicas();
  }
  at::Tensor some_inputs(int count) const;  // the first samples of the training set, as evaluation would see them
  void agree_on_buffers();

  void measure_with(Yardstick* yardstick) { yardstick_ = yardstick; }  // borrowed for the run; none: nothing is measured

  nn::Model& model() { return model_; }
  const data::Form& form() const { return train_->form(); }
  const data::Transforms& transforms() const { return transforms_; }
  engine::Engine& engine() { return *engine_; }
  optim::LossScale& scale() { return scale_; }
  const optim::LossScale& scale() const { return scale_; }
  const std::string& tuning() const { return tuning_; }                // what autotune chose and why; empty: it was not asked
  const std::string& recomputing() const { return recomputing_.why; }  // which blocks; empty: it was not asked
  const std::string& groups() const { return groups_; }                // "decayed 1.2 M in 5 tensors, .."
  double base_lr() const { return base_lr_; }
  std::int64_t global_batch() const { return static_cast<std::int64_t>(config_.data.batch) * config_.data.accumulate * comm_.size(); }

 private:
  std::vector<engine::Parameter> parameters(const optim::Optimizer& rule);
  void open_loader();
  at::Tensor forward(const at::Tensor& inputs);  // logits in fp32, computed in config.precision
  nn::NamedTensors replicas() const;
  nn::Tensors on_device(const data::Batch& batch) const;
  double compute(const data::Batch& batch);  // forward and backward of all its micro-batches; returns the sum of losses
  bool ends_here() const { return under_way_ && engine_->standing() == engine::Standing::decided; }
  void count_step(bool committed);
  double not_its_own() const;

  collective::Communicator& comm_;
  const TrainConfig config_;
  Whereabouts& where_;
  const std::optional<CoreWait> cores_;                  // where ranks share cores: the time without one says nothing about a rank
  std::unique_ptr<collective::Communicator> norm_comm_;  // of SyncBatchNorm, where asked for
  nn::Model model_;
  c10::Device device_{c10::kCPU};  // of the model
  std::string groups_, tuning_;
  double base_lr_ = 0;
  std::unique_ptr<engine::Engine> engine_;
  const optim::Schedule schedule_;
  optim::LossScale scale_;  // the step's vote is its overflow: the same on every rank
  std::shared_ptr<const data::Dataset> train_, test_;
  data::Transforms transforms_;
  const Recomputing recomputing_;
  std::unique_ptr<data::Loader> loader_;
  std::int64_t steps_per_epoch_ = 0, total_ = 0, step_ = 0;
  data::Position position_;
  std::optional<data::Position> under_way_;   // the step whose gradients are computed, until it is counted
  std::int64_t first_epoch_ = 0, first_ = 0;  // samples of that epoch that were gone before its step 0
  Yardstick* yardstick_ = nullptr;
  std::atomic<bool> leaves_{false};
  bool warm_ = false;              // a step was made
  bool agreed_ = true;             // buffers are the same on all ranks
  std::int64_t compared_ = -1;     // the step after which replicas were compared last ..
  bool compared_buffers_ = false;  // .. with the buffers
  bool diverged_ = false;          // and were not the same
};

}  // namespace cohort
